"""Compare a copied tree with the original's manifest: missing, truncated, different, unexpected files."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, get_args

from verl_doctor.toolkit.collectors.packages.tree_manifest import Entry, TreeManifest
from verl_doctor.toolkit.text import counted

Fault = Literal[
    "nested",
    "missing",
    "empty",
    "shorter",
    "half copied",
    "different",
    "other case",
    "link",
    "pointer",
    "unreadable",
    "not executable",
    "extra source",
    "extra",
]
"""Ordered from worst to harmless."""

HARMLESS: frozenset[Fault] = frozenset({"extra"})
"""Faults that do not affect a job."""

_ORDER: tuple[Fault, ...] = get_args(Fault)
_OF_CONTENT: frozenset[Fault] = frozenset({"empty", "shorter", "different"})
# rsync(1), "--partial" and "--temp-dir": the file that is being written is ".NAME.XXXXXX" until it is whole.
_OF_RSYNC = re.compile(r"\.(?P<name>.+)\.(?P<random>[A-Za-z0-9]{6})")
_PARTIAL = re.compile(r"(?:.*/)?(?:\.rsync-partial|\.~tmp~)/.*|.*\.(?:filepart|part|partial)")
_SOURCE = (".py", ".pyi", ".so", ".yaml", ".yml", ".pth")
_EXECUTABLE = 0o111
_FEW = 3  # files of one folder that are listed individually
_MOST_DEEP = 3  # depth to which a copy of the tree is searched


@dataclass(frozen=True)
class Damage:
    """One difference from the original. If `path` is a folder (it ends in "/"), it covers `count` files."""

    fault: Fault
    path: str
    detail: str = ""
    count: int = 1


def compare(old: TreeManifest, new: TreeManifest, meant: Container[str] = ()) -> list[Damage]:
    """Return all differences, folded by folder, the worst first.

    The content of files changed on purpose (`meant`) is not compared.
    """
    was, now = _by_path(old, new), _by_path(new, old)
    copies = list(_copies((path for path in now if path not in was), was))
    inside = tuple(copy.path for copy in copies)
    now = {path: entry for path, entry in now.items() if not path.startswith(inside)} if inside else now
    found = [
        damage for damage in _faults(was, now) if damage.fault not in _OF_CONTENT or damage.path not in meant
    ]
    found += _faults_alone(now, was)
    extra = [path for path in now if path not in was]
    reported, known = {damage.path for damage in found}, set(map(_key, was))
    found += [
        Damage(_kind_of_extra(path, new.package), path)
        for path in extra
        if path not in reported and _key(path) not in known
    ]
    return _in_order([*copies, *folded(found, was, now)])


def alone(new: TreeManifest) -> list[Damage]:
    """Return damage visible in the tree itself after an incomplete copy."""
    now = {entry.path: entry for entry in new.entries()}
    return _in_order(folded(list(_faults_alone(now, {})), {}, now))


def _in_order(found: Iterable[Damage]) -> list[Damage]:
    return sorted(found, key=lambda damage: (_ORDER.index(damage.fault), damage.path))


def _by_path(tree_manifest: TreeManifest, other: TreeManifest) -> dict[str, Entry]:
    """Return the files by path.

    If one side is a checkout and the other only the package, return those of the package.
    """
    if tree_manifest.package == other.package:
        return {entry.path: entry for entry in tree_manifest.entries()}
    above = f"{tree_manifest.package}/" if tree_manifest.package else ""
    inside = (entry for entry in tree_manifest.entries() if entry.path.startswith(above))
    return {path: replace(entry, path=path) for entry in inside if (path := entry.path.removeprefix(above))}


def _faults(was: Mapping[str, Entry], now: Mapping[str, Entry]) -> Iterator[Damage]:
    """Yield files of the original that are missing or changed."""
    by_key = {_key(path): path for path in now}
    for path, old in was.items():
        new = now.get(path)
        if new is None:
            other = by_key.get(_key(path))
            if other is not None:
                yield Damage(
                    "other case", path, f"{other} exists, whose name differs only in case or accents"
                )
            else:
                yield Damage("missing", path)
        elif new.kind not in ("unreadable", "pointer"):
            yield from _differs(old, new)


def _differs(old: Entry, new: Entry) -> Iterator[Damage]:
    is_link, was_link = "link" in new.kind, "link" in old.kind
    if is_link and was_link:
        if old.digest != new.digest and old.kind == new.kind:
            yield Damage("link", new.path, "it points elsewhere than in the original")
    elif was_link:
        yield Damage("link", new.path, "a link in the original, a regular file here")
    elif is_link:
        yield Damage("link", new.path, "a file in the original, a link here")
    elif old.kind == "unreadable" or new.digest == old.digest or new.bare == old.bare:
        if old.mode & _EXECUTABLE and not new.mode & _EXECUTABLE:
            yield Damage("not executable", new.path)
    elif not new.size:
        yield Damage("empty", new.path, f"0 of {old.size:,} bytes")
    elif new.size < old.size:
        yield Damage("shorter", new.path, f"{new.size:,} of {old.size:,} bytes")
    else:
        yield Damage("different", new.path)


def _faults_alone(now: Mapping[str, Entry], was: Mapping[str, Entry]) -> Iterator[Damage]:
    """Yield damage visible without comparison, unless the original has it too."""
    for path, entry in now.items():
        if path in was and was[path].kind == entry.kind:
            continue
        if entry.kind == "broken link":
            yield Damage("link", path, "its target does not exist")
        elif entry.kind == "pointer":
            yield Damage("pointer", path, "a Git LFS pointer instead of the file")
        elif entry.kind == "unreadable":
            yield Damage("unreadable", path)
        elif path not in was and _half_copied(path, now, was):
            yield Damage("half copied", path, "left by an interrupted copy")


def _half_copied(path: str, now: Mapping[str, Entry], was: Mapping[str, Entry]) -> bool:
    if _PARTIAL.fullmatch(path):
        return True
    folder, _, name = path.rpartition("/")
    match = _OF_RSYNC.fullmatch(name)
    if match is None:
        return False
    whole = f"{folder}/{match['name']}" if folder else match["name"]
    by_chance = match["random"].islower() and match["random"].isalpha()  # .env.sample
    return whole in was or whole in now or ("." in match["name"] and not by_chance)


def _key(path: str) -> str:
    """Equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFC", path).casefold()


def _kind_of_extra(path: str, package: str) -> Fault:
    inside = path.startswith(f"{package}/") if package else True
    return "extra source" if inside and path.endswith(_SOURCE) else "extra"


def _copies(extra: Iterable[str], was: Mapping[str, Entry]) -> Iterator[Damage]:
    """Yield copies of the tree inside itself: folders that do not exist in the original."""
    every = list(extra)
    whole = _whole_folder(_folders(was))
    tops = tuple(f"{top}/" for top in _nested(every, was))
    inside = Counter(folder for path in every if path.startswith(tops) and (folder := whole(path)))
    for folder, number in inside.items():
        yield Damage("nested", f"{folder}/", "a copy of the tree inside itself", number)


def _nested(extra: Iterable[str], was: Mapping[str, Entry]) -> Iterator[str]:
    """Yield folders that repeat paths of the tree, as rsync without a trailing slash creates them."""
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for path in extra:
        parts = path.split("/")
        for depth in range(1, min(len(parts), _MOST_DEEP + 1)):
            top = "/".join(parts[:depth])
            total[top] += 1
            hits[top] += "/".join(parts[depth:]) in was
    for top, number in hits.items():
        if number >= min(_FEW, len(was)) and 2 * number >= total[top] and 4 * number >= len(was):
            yield top


def folded(found: list[Damage], was: Mapping[str, Entry], now: Mapping[str, Entry]) -> Iterator[Damage]:
    """Replace complete folders, or many files of one folder, by a single entry."""
    kept = {"missing": _folders(now), "extra": _folders(was), "extra source": _folders(was)}
    for fault, some in groupby(
        sorted(found, key=lambda damage: (damage.fault, damage.path)), key=lambda damage: damage.fault
    ):
        same = list(some)
        whole = _whole_folder(kept.get(fault))
        for folder, inside in groupby(same, key=lambda damage: whole(damage.path)):
            members = list(inside)
            if folder and len(members) > 1:
                yield Damage(fault, f"{folder}/", "all of it", len(members))
            elif not folder or len(members) == 1:
                yield from _few(fault, members)


def _few(fault: Fault, members: list[Damage]) -> Iterator[Damage]:
    for folder, inside in groupby(members, key=lambda member: member.path.rpartition("/")[0]):
        some = list(inside)
        if len(some) <= _FEW:
            yield from some
        else:
            yield Damage(fault, f"{folder}/", f"{counted(len(some), 'file')} of it", len(some))


def _folders(entries: Mapping[str, Entry]) -> frozenset[str]:
    """Return all folders that contain files."""
    return frozenset(path[:at] for path in entries for at, letter in enumerate(path) if letter == "/")


def _whole_folder(kept: frozenset[str] | None) -> Callable[[str], str]:
    """Return the topmost folder above a path that the other side lacks entirely; "" if there is none."""

    def around(path: str) -> str:
        if not kept:
            return ""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in kept:
                return folder
        return ""

    return around
