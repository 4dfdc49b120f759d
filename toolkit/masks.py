"""Stand-ins for what names people and machines, for a page that anybody may read: the same one wherever the same name stands.

A home folder becomes `~`, a user USER, a host node-17 or host-1, an address address-1. What only looks like one of them stays:
versions, loopback, networks that everybody has, and words that the page needs, such as the names of packages.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.secret import without_secrets

_SHORTEST = 3  # letters of a name that is looked for as a word; a shorter one is masked in paths alone
# Accounts that images come with, and what machines are called that are told by nothing else.
_NOBODY = frozenset(
    {
        *(
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
        ),
        *(
            "localhost",
            "node",
            "host",
            "head",
            "worker",
            "master",
            "server",
            "gpu",
            "compute",
            "machine",
            "cluster",
        ),
    }
)
_HOME = re.compile(r"(?<![\w.-])((?:/[\w.-]+)*?/(?:home|Users))/([^/\s:;,'\"()\[\]<>|*?$`\\]+)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}\b")
# Names that clouds and clusters give to machines; a dotted name of Python has no number or hyphen before its first dot.
_OF_CLOUDS = re.compile(
    r"\bip-\d+-\d+-\d+-\d+(?:\.[\w-]+)*"
    r"|(?<![\w./-])(?=[A-Za-z0-9-]*[\d-])[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*"
    r"\.(?:internal|local|localdomain|lan|corp|intranet|cluster)\b(?![\w(/-])"
)
_LOGIN = re.compile(r"(?<![\w.-])(?!git@)[A-Za-z_][\w.-]*@(?=[\w-]+[\w.:-]*\d)")
_V4 = re.compile(r"(?<![\w.<>~!])(?<![^/:]/)(?<![=<>~!]=)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w|-\w)")
_V6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:.])")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_IDENTITY = re.compile(
    r"(?<![\w-])(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])|(?<!\w)[0-9a-f]{64}(?!\w)"
)
_OF_EVERYBODY = tuple(
    ipaddress.ip_network(text) for text in ("127.0.0.0/8", "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.0.0.0/8", "::/127")
)  # fmt: skip
_PRIVATE = tuple(
    ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_LONGEST_GENERIC = 4  # letters of what hosts are called before their numbers that may as well be a GPU's name
_LAST_NUMBER = re.compile(r"(.*?)(\d+)")


@dataclass(frozen=True)
class Names:
    """What is known to name somebody. `words` are not masked, whoever is called so; `versions` are no addresses.

    `folders` are home folders, `others` further names with the word that stands in for them.
    """

    folders: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    others: Mapping[str, str] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()


class Masks:
    """Masks texts. Which stand-ins were given is kept for the next text."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._given: dict[tuple[str, str], str] = {}
        self._folders = _any_of(
            names.folders - {"", "/", "/root"}, r"(?<![\w.~-])", r"(?=/|$|[\s:;,'\"()\[\]])"
        )
        self._homes = "/root" in names.folders
        self._people = _any_of(self._worth(names.people), r"(?<![A-Za-z0-9.])", r"(?![A-Za-z0-9])")
        self._others = _any_of(self._worth(names.others), r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])")
        self._hosts = hosts = {host.split(".")[0] for host in names.hosts if host and not _is_address(host)}
        self._domains = sorted(
            {host.partition(".")[2] for host in names.hosts if not _is_address(host)} - {""}
        )
        self._in_rows, self._alone = _families(self._worth(hosts))
        domain = "|".join(map(re.escape, self._domains))
        behind = rf"(?:\.(?:{domain}))?" if domain else ""
        rows = "|".join(map(re.escape, sorted(self._in_rows, key=len, reverse=True)))
        self._row = re.compile(rf"(?<![\w-])({rows})(\d+(?![\w])|\[[\d,-]+\]){behind}") if rows else None
        self._host = _any_of(self._alone, r"(?<![\w-])", rf"{behind}(?![\w-])")
        self._domain = re.compile(rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:{domain})\b") if domain else None

    def __call__(self, text: str) -> str:
        """The text without secrets and with stand-ins."""
        return self.names(without_secrets(text))

    def names(self, text: str) -> str:
        """The text with stand-ins."""
        if text in self._hosts:
            return self._hosts_in(text) if len(text) >= _SHORTEST else self._stand_in("host", text)
        if len(text) < _SHORTEST:
            return text
        if self._folders is not None:
            text = self._folders.sub("~", text)
        if self._homes:
            text = re.sub(r"(?<![\w./~-])/root(?![\w.-])", "~", text)
        text = _HOME.sub(self._home, text)
        text = self._hosts_in(text)
        text = _MAIL.sub(lambda found: found[0] if found[0].startswith("git@") else "USER@HOST", text)
        text = _LOGIN.sub(self._login, text)
        if self._people is not None:
            text = self._people.sub("USER", text)
        if self._others is not None:
            text = self._others.sub(lambda found: self._names.others[found[0]], text)
        text = _MAC.sub(lambda found: self._stand_in("mac", found[0].lower()), text)
        text = _IDENTITY.sub(lambda found: self._stand_in("id", found[0]), text)
        return _V6.sub(self._address, _V4.sub(self._address, text))

    def _hosts_in(self, text: str) -> str:
        if self._row is not None:
            text = self._row.sub(self._in_row, text)
        if self._host is not None:
            text = self._host.sub(lambda found: self._stand_in("host", found[0].split(".")[0]), text)
        if self._domain is not None:
            text = self._domain.sub(lambda found: self._stand_in("host", found[0]), text)
        return _OF_CLOUDS.sub(lambda found: self._stand_in("host", found[0]), text)

    def _in_row(self, found: re.Match[str]) -> str:
        """One of the hosts that are called alike keeps its number: node-17; of the next such row it is node2-17."""
        stem, number = found[1], found[2]
        if len(stem) <= _LONGEST_GENERIC and stem + number not in self._hosts and number.isdigit():
            return found[0]
        row = self._given.setdefault(("row", stem), str(1 + sum(kind == "row" for kind, _ in self._given)))
        return f"node{'' if row == '1' else row}-{number}"

    def _home(self, found: re.Match[str]) -> str:
        return found[0] if found[2].lower() in _NOBODY else f"{found[1]}/USER"

    def _login(self, found: re.Match[str]) -> str:
        return found[0] if found[0][:-1] in _NOBODY else "USER@"

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        if text in self._names.versions:
            return text
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if _within(address, _OF_EVERYBODY) or any(address == one.network_address for one in _PRIVATE):
            return text
        if found.string[found.start() - 1 : found.start()] == "-" and not _within(address, _PRIVATE):
            return text
        return self._stand_in("address", str(address))

    def _stand_in(self, kind: str, name: str) -> str:
        number = 1 + sum(other == kind for other, _ in self._given)
        return self._given.setdefault((kind, name), f"{kind}-{number}")

    def _worth(self, names: Iterable[str]) -> frozenset[str]:
        """Those that can be looked for as words: not so short, and no words that mean something else."""
        common = _NOBODY | self._names.words
        return frozenset(name for name in names if len(name) >= _SHORTEST and name.lower() not in common)


def people_in(texts: Iterable[str]) -> frozenset[str]:
    """The users whose home folders are named."""
    return frozenset(found[2] for text in texts for found in _HOME.finditer(text))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _within(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
    networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _any_of(words: Iterable[str], before: str, behind: str) -> re.Pattern[str] | None:
    listed = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.compile(f"{before}(?:{listed}){behind}") if listed else None


def _families(hosts: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Hosts that are called alike but for the number at the end, by what they have in common; and the others."""
    rows, alone = set(), set()
    for host in hosts:
        numbered = _LAST_NUMBER.fullmatch(host)
        if numbered and not re.fullmatch(r"[0-9a-f]{8,}", host) and len(numbered[1]) > 1:
            rows.add(numbered[1])
        else:
            alone.add(host)
    return frozenset(rows), frozenset(alone)
