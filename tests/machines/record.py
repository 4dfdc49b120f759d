"""Make a facts file fit for this folder: what the rules about machines need of it, and nothing that says whose it is.

    verl-doctor check --deep --save-facts FACTS LAUNCH_SCRIPT
    python tests/machines/record.py FACTS RECORDED [--is /data/ann/env=/env]...
    python tests/machines/record.py --add 'FACT={"absent": "why"}' RECORDED...

The second adds a new fact to machines that were recorded before it existed, in the form that a facts file has.
The same facts give the same file, one line a fact. Numbers, versions and what the kernel says stay as they were taken.
A value that looks like a secret is refused and never written.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.system.secret import may_hold_secret, suggests_secret

FAMILIES = frozenset({"CUDA", "HOST", "NET", "ENV"})

# Text of a report's header.
_BESIDES = frozenset({"Interpreter", "Packages", "VerlTrees", "VllmTree"})
# Much, and read by rules of other families alone.
_NOT_NEEDED = (("Configuration", "before"), ("Configuration", "origins"), ("Configuration", "deprecated"))
# Versions in these look like addresses and names of packages like secrets, and all of it is public.
_PUBLIC = frozenset({"Packages", "Wheels", "CudaWheels", "Extensions", "PackagesCode"})
# Fields and settings of verl that are called keys and name a setting, a column or a feature.
_NAMES_OF_KEYS = frozenset(
    {"key", "prompt_key", "reward_fn_key", "image_key", "video_key", "audio_key", "teacher_key"}
)
_FOLDERS = {"/root": "/home/user", "/opt": "/usr/local"}
_HOME = re.compile(r"/home/([^/\s:'\"]+)")
_UUID = re.compile(
    r"\b(?P<kind>GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?P<short>GPU-|MIG-)[0-9a-f]{6,}\b"
)
_LONG_HEX = re.compile(r"(?<![0-9a-f])[0-9a-f]{32,64}(?![0-9a-f])")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]|/\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:.])")
# Stand-ins of the same kind: rules tell loopback, private, link-local and other addresses apart.
_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fe80::/10", "fc00::/7")
)
_OTHERS = {4: ipaddress.ip_network("192.0.2.0/24"), 6: ipaddress.ip_network("2001:db8::/32")}


class RefusedError(Exception):
    """A value that must not be published."""


class Redaction:
    """Stand-ins for what names a machine and its user: the same one wherever the same name stands."""

    def __init__(
        self, folders: Mapping[str, str], host: str = "", users: frozenset[str] = frozenset()
    ) -> None:
        self._folders = dict(sorted({**_FOLDERS, **folders}.items(), key=lambda pair: (-len(pair[0]), pair)))
        self._host = host
        self._users = users - {"user"}
        self._seen: dict[str, str] = {}

    def text(self, text: str, *, addresses: bool = True) -> str:
        """The text with stand-ins."""
        for folder, other in self._folders.items():
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", other, text)
        text = _HOME.sub("/home/user", text)
        for user in sorted(self._users):
            text = re.sub(rf"(?<=[_-]){re.escape(user)}(?=$|/)", "user", text)
        if self._host and (text == self._host or len(self._host) > 3):
            text = re.sub(rf"(?<![\w-]){re.escape(self._host)}(?![\w-])", "node", text)
        text = _UUID.sub(self._uuid, text)
        text = _LONG_HEX.sub(lambda found: self._stand_in(found[0], lambda n: f"{n:0{len(found[0])}x}"), text)
        if addresses:
            text = _IPV6.sub(self._address, _IPV4.sub(self._address, text))
        return text

    def _stand_in(self, name: str, make: Callable[[int], str]) -> str:
        if name not in self._seen:
            self._seen[name] = make(len(self._seen) + 1)
        return self._seen[name]

    def _uuid(self, found: re.Match[str]) -> str:
        kind = found["kind"] or found["short"] or ""
        if found["short"]:
            return self._stand_in(found[0], lambda n: f"{kind}{n:08x}")
        return self._stand_in(found[0], lambda n: f"{kind}{n:08x}-0000-0000-0000-000000000000")

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified:
            return found[0]
        own = [network for network in _NETWORKS if address in network]
        network = own[0] if own else _OTHERS[address.version]
        return self._stand_in(found[0], lambda n: str(network[n]))


@functools.cache
def needed_facts() -> frozenset[str]:
    """Facts needed by the rules about machines, and those that mask them."""
    parts = registry.load()
    local = {collector.fact for collector in parts.collectors if collector.local}
    waiting = [check for check in parts.checks if check.family in FAMILIES]
    asked: dict[str, set[type]] = {}
    while waiting:
        check = waiting.pop()
        if check.code not in asked:
            asked[check.code] = set(_needs(check))
            waiting += [other for other in parts.checks if other.code in check.requires]
    return frozenset(fact.__name__ for fact in set().union(*asked.values()) - local) | _BESIDES


def _needs(check: Check) -> Iterator[type]:
    for need in (*check.needs, *check.applies_needs, *check.paths_needs, *check.unjudged_needs):
        yield need.fact


def recorded(document: Mapping[str, Any], folders: Mapping[str, str] | None = None) -> str:
    """The facts file's text for this folder. Raises RefusedError, naming the place, when a value looks like a secret."""
    needed = needed_facts()
    facts = {name: entry for name, entry in document["facts"].items() if name in needed}
    for name, field in _NOT_NEEDED:
        facts.get(name, {}).get("is", {}).pop(field, None)
    for distribution in facts.get("Packages", {}).get("is", {}).get("distributions", ()):
        distribution["requires"] = [text for text in distribution["requires"] if "extra" not in text]
    for name, entry in facts.items():
        if name not in _PUBLIC:
            _refuse_secrets(entry, name)
    whole = json.dumps(facts)
    host = facts.get("Network", {}).get("is", {}).get("host", {}).get("name", "")
    redaction = Redaction(folders or {}, host, frozenset(_HOME.findall(whole)))
    return _written(
        document,
        {name: _mapped(entry, redaction, addresses=name not in _PUBLIC) for name, entry in facts.items()},
    )


def with_fact(text: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text of a recorded machine with one more fact. Raises RefusedError where no rule about machines needs it."""
    if name not in needed_facts():
        raise RefusedError(f"{name}: no rule about machines needs it")
    _refuse_secrets(entry, name)
    document = json.loads(text)
    return _written(document, {**document["facts"], name: entry})


def _written(document: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    lines = [f' "{name}": {json.dumps(entry)}' for name, entry in sorted(facts.items())]
    version = json.dumps(document["verl_doctor"])
    return (
        f'{{"schema_version": {document["schema_version"]}, "verl_doctor": {version}, "facts": {{\n'
        + ",\n".join(lines)
        + "\n}}\n"
    )


def _refuse_secrets(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and inner and name not in _NAMES_OF_KEYS and suggests_secret(name):
                raise RefusedError(f"{place}: {name} may be a secret")
            _refuse_secrets(inner, f"{place}.{name}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_secrets(inner, f"{place}[{index}]")
    elif isinstance(value, str) and may_hold_secret(value):
        raise RefusedError(f"{place}: a secret may be in its text")


def _mapped(value: Any, redaction: Redaction, *, addresses: bool) -> Any:
    if isinstance(value, dict):
        return {
            redaction.text(name, addresses=addresses): _mapped(inner, redaction, addresses=addresses)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_mapped(inner, redaction, addresses=addresses) for inner in value]
    return redaction.text(value, addresses=addresses) if isinstance(value, str) else value


def main() -> None:
    """Read one file and write the other, or add a fact to each."""
    parser = ArgumentParser(description="Make a facts file fit for tests/machines.")
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="FACTS RECORDED, or with --add RECORDED..."
    )
    parser.add_argument("--add", metavar="FACT=ENTRY", help="add a fact, with its entry in a facts file")
    parser.add_argument(
        "--is", dest="folders", action="append", default=[], metavar="FOLDER=NAME", help="rename a folder"
    )
    given = parser.parse_args()
    if given.add:
        name, _, entry = given.add.partition("=")
        for file in given.files:
            file.write_text(with_fact(file.read_text("utf-8"), name, json.loads(entry)), "utf-8")
        return
    if len(given.files) != 2:
        parser.error("two files are needed: FACTS RECORDED")
    facts, to = given.files
    folders = dict(pair.split("=", 1) for pair in given.folders)
    to.write_text(recorded(json.loads(facts.read_text("utf-8")), folders), "utf-8")


if __name__ == "__main__":
    main()
