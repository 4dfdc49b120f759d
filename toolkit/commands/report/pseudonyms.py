"""Pseudonyms for names of people and machines on a public page; the same name always gets the same pseudonym.

A home folder becomes `~`, a user USER, a host node-17 or host-1, an address address-1. Text that only
resembles a name stays: versions, loopback, common networks, and words that the page needs, such as package
names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.network.network import is_address
from verl_doctor.toolkit.system.secret import without_secrets

# A dotted Python name has no number or hyphen before its first dot.
_OF_CLOUDS = re.compile(
    r"\bip-\d+-\d+-\d+-\d+(?:\.[\w-]+)*"
    r"|(?<![\w./-])(?=[A-Za-z0-9-]*[\d-])[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*"
    r"\.(?:internal|local|localdomain|lan|corp|intranet|cluster)\b(?![\w(/-])(?:\.[A-Za-z0-9-]+)*"
)
# A server of one's own: no public page is reached by these. The first group stays.
_OF_SERVICES = re.compile(
    (
        r"\b((?:smb|cifs|nfs|hdfs|viewfs|rediss?|postgres(?:ql)?|mysql|mongodb(?:\+srv)?|amqps?|ldaps?|tcp"
        r"|grpcs?|ssh|sftp|ftp|rsync|ray)://(?:[^\s/@]*@)?)(?!(?:localhost|host-\d+|node\d*-\d+|address-\d+"
        r"|github\.com|gitlab\.com|huggingface\.co|hf\.co)\b)([A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*)"
    ),
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.{2,}?)\d+")
_ONLY_HEX = re.compile(r"[0-9a-f]{8,}")  # what container engines call a container
_LONGEST_GENERIC = 4  # letters before a number that may belong to a GPU's name


class StandIns:
    """Assigns and remembers pseudonyms, numbered by kind; the same name always gets the same one."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        """Return `address-1` for the first name of that kind, `address-2` for the next."""
        return f"{kind}-{self.number(kind, name)}"

    def number(self, kind: str, name: str) -> str:
        """Return the number of a name's pseudonym."""
        known = self._given.setdefault(kind, {})
        return known.setdefault(name, str(len(known) + 1))


class HostMask:
    """Masks host names in a text, with or without their domain.

    Without its domain, a name is masked only if it `may_be_found` as a word.
    """

    def __init__(
        self, hosts: Iterable[str], may_be_found: Callable[[str], bool], stand_ins: StandIns
    ) -> None:
        self._stand_ins = stand_ins
        parts = [host.partition(".") for host in hosts]
        self._names = {name for name, _, _ in parts if may_be_found(name)}
        stems = {name: _stem(name) for name in self._names}
        domains = "|".join(sorted(re.escape(domain) for _, _, domain in parts if domain))
        behind = rf"(?:\.(?:{domains}))?" if domains else ""
        self._row = any_of(
            filter(None, stems.values()), r"(?<![\w-])", rf"(?P<number>\d+(?!\w)|\[[\d,-]+\]){behind}"
        )
        self._alone = any_of(
            (name for name, stem in stems.items() if not stem), r"(?<![\w-])", rf"{behind}(?![\w-])"
        )
        self._domain = re.compile(rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:{domains})\b") if domains else None

    def __call__(self, text: str) -> str:
        """Return the text with pseudonyms."""
        if self._row is not None:
            text = self._row.sub(self._in_row, text)
        if self._alone is not None:
            text = self._alone.sub(lambda found: self._stand_ins.of("host", found["word"]), text)
        if self._domain is not None:
            text = self._domain.sub(self._host, text)
        text = _OF_CLOUDS.sub(self._host, text)
        return _OF_SERVICES.sub(lambda found: found[1] + self._stand_ins.of("host", found[2]), text)

    def _host(self, found: re.Match[str]) -> str:
        return self._stand_ins.of("host", found[0])

    def _in_row(self, found: re.Match[str]) -> str:
        stem, number = found["word"], found["number"]
        if len(stem) <= _LONGEST_GENERIC and number.isdigit() and stem + number not in self._names:
            return found[0]
        row = self._stand_ins.number("row", stem)
        return f"node{'' if row == '1' else row}-{number}"


def _stem(name: str) -> str:
    """Return the part of a name before its final number, "" if there is none."""
    numbered = None if _ONLY_HEX.fullmatch(name) else _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else ""


def any_of(words: Iterable[str], before: str, behind: str) -> re.Pattern[str] | None:
    """Return a pattern that finds each word, the longest first, as the group `word`; None without words."""
    listed = "|".join(map(re.escape, sorted(set(words), key=len, reverse=True)))
    return re.compile(f"{before}(?P<word>{listed}){behind}") if listed else None


_SHORTEST = 3  # letters of a name that is searched as a word; shorter ones are masked only in paths
# Common accounts in images, and generic names of machines.
_ACCOUNTS = (
    "root",
    "user",
    "users",
    "admin",
    "nobody",
    "ubuntu",
    "debian",
    "docker",
    "runner",
    "jovyan",
    "linux",
)
_MACHINES = ("localhost", "node", "host", "head", "worker", "master", "server", "gpu", "machine", "cluster")
_FOLDERS = ("home", "work", "workspace", "data")  # the last part of HOME in containers
_NOT_USERS = frozenset((*_ACCOUNTS, *_FOLDERS, *_MACHINES))
_BEFORE_A_PATH = r"(?<![\w.~-])"
_HOME_OF_ROOT = re.compile(r"(?<![\w./~-])/root(?![\w.-])")
_HOME = re.compile(r"(?<![\w.-])((?:/[\w.-]+)*?/(?:home/users|home|[Uu]sers))/([^/\s:;,'\"()\[\]<>|*?$`\\]+)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}\b")
_LOGIN = re.compile(r"(?<![\w.-])(?!git@)[A-Za-z_][\w.-]*@(?=[\w-]+[\w.:-]*\d)")
_LOGIN_AT_HOST = re.compile(r"(?<![\w.+-])[A-Za-z_][\w.-]*@(?=[A-Za-z][\w.-]*\d)")
_NO_PERSON = frozenset({"git", "noreply", "no-reply", "info", "support", "help", "hello", "dev"})
_V4 = re.compile(r"(?<![\w.<>~!])(?<![^/:]/)(?<![=<>~!]=)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w|-\w)")
_V6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:.])")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_IDENTITY = re.compile(
    r"(?<![\w-])(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])|(?<!\w)[0-9a-f]{64}(?!\w)"
)
_OF_EVERYBODY = tuple(
    ipaddress.ip_network(text)
    for text in ("127.0.0.0/8", "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.0.0.0/8", "::/127")
)
_PRIVATE = tuple(
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)


@dataclass(frozen=True)
class Names:
    """The known names.

    `words` are never masked; `versions` are not addresses. `folders` are home folders, `others` further names
    with their pseudonyms.
    """

    folders: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    others: Mapping[str, str] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()


class Masks:
    """Masks texts, and keeps the pseudonyms for the next text."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stand_ins = StandIns()
        self._folders = any_of(
            names.folders - {"", "/", "/root"}, _BEFORE_A_PATH, r"(?=/|$|[\s:;,'\"()\[\]])"
        )
        self._home_of_root = "/root" in names.folders
        self._users = any_of(
            filter(self._may_be_found, names.users), r"(?<![A-Za-z0-9.])", r"(?![A-Za-z0-9])"
        )
        self._others = any_of(
            filter(self._may_be_found, names.others), r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
        )
        hosts = frozenset(host for host in names.hosts if host and not is_address(host))
        self._short = frozenset(host for host in hosts if len(host) < _SHORTEST)
        self._hosts = HostMask(hosts, self._may_be_found, self._stand_ins)

    def __call__(self, text: str) -> str:
        """Return the text without secrets and with pseudonyms."""
        return self.names(without_secrets(text))

    def names(self, text: str) -> str:
        """Return the text with pseudonyms."""
        if text in self._short:
            return self._stand_ins.of("host", text)
        if len(text) < _SHORTEST:
            return text
        if self._folders is not None:
            text = self._folders.sub("~", text)
        if self._home_of_root:
            text = _HOME_OF_ROOT.sub("~", text)
        text = _HOME.sub(self._home, text)
        text = self._hosts(text)
        text = _MAIL.sub(lambda found: found[0] if found[0].startswith("git@") else "USER@HOST", text)
        text = _LOGIN.sub(self._login, text)
        if self._users is not None:
            text = self._users.sub("USER", text)
        if self._others is not None:
            text = self._others.sub(lambda found: self._names.others[found[0]], text)
        text = _MAC.sub(lambda found: self._stand_ins.of("mac", found[0].lower()), text)
        text = _IDENTITY.sub(lambda found: self._stand_ins.of("id", found[0]), text)
        return _V6.sub(self._address, _V4.sub(self._address, text))

    def _home(self, found: re.Match[str]) -> str:
        return found[0] if found[2].lower() in _NOT_USERS else f"{found[1]}/USER"

    def _login(self, found: re.Match[str]) -> str:
        return found[0] if found[0][:-1] in _NOT_USERS else "USER@"

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        if text in self._names.versions:
            return text
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if _within(address, _OF_EVERYBODY) or any(address == network.network_address for network in _PRIVATE):
            return text
        if found.string[found.start() - 1 : found.start()] == "-" and not _within(address, _PRIVATE):
            return text
        return self._stand_ins.of("address", str(address))

    def _may_be_found(self, name: str) -> bool:
        """Return whether a name can be searched as a word: it is long enough and has no other meaning."""
        return len(name) >= _SHORTEST and name.lower() not in _NOT_USERS | self._names.words


def users_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the users whose home folders or addresses appear: alice@corp.example, alice@gpu-7."""
    users = set()
    for text in texts:
        users |= {found[2] for found in _HOME.finditer(text)}
        addresses = (*_MAIL.findall(text), *_LOGIN_AT_HOST.findall(text))
        users |= {address.partition("@")[0] for address in addresses}
    return frozenset(users - _NO_PERSON)


def _within(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(address in network for network in networks if network.version == address.version)
