"""What became of a key of verl's configuration, and which current key the user may have meant."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.sources.hydra.verl_keys import Rename, releases, renames

_PLAIN = 0.9  # the similarity from which two names are certainly the same
_CLOSE = 0.75  # the similarity from which a name may be a typo of another
_LONGEST = 300  # characters of a key that is compared with others: verl's have at most a third of that
_WORD = re.compile(r"[^._]+")


@dataclass(frozen=True)
class History:
    """The later release that added a key, and the current or earlier one that removed it.

    Both are empty if unknown.
    """

    came: str = ""
    went: str = ""


def renamed(key: str, configuration: Configuration) -> Rename | None:
    """The key's name in the current tree, after several renames if need be; None if unknown."""
    name, notes, release = key, [], ""
    for rename in renames():
        if new := rename.renamed(name):
            name, release = new, rename.release
            notes += [rename.note] if rename.note else []
        if name != key and configuration.has(name):
            return Rename(key, name, release, "; ".join(notes))
    return None


def certain(word: OverrideWord, configuration: Configuration) -> str:
    """The key, with its sign, that an unsigned word must mean in the current tree; "" if that is a guess.

    A rename does not count if it changed the value's meaning, or left part of it to another key.
    """
    if word.fate != "no such key" or word.sign:
        return ""
    moved = renamed(word.key, configuration)
    if moved is not None:
        return "" if moved.note else moved.new
    return f"+{word.key}" if is_free(word.key, configuration) else ""


def is_free(key: str, configuration: Configuration) -> bool:
    """Whether verl leaves the key's section to the user: it is empty in verl's tree, or for engines."""
    above = key.rpartition(".")[0]
    while above:
        if ".engine_kwargs." in f"{above}." or ".override_config" in f"{above}.":
            return True
        if configuration.get(above) == {}:
            return True
        above = above.rpartition(".")[0]
    return False


def history(key: str, verl: str) -> History:
    """The last later release that added a key, and the last that removed it up to the current one."""
    try:
        here = Version(verl)
    except InvalidVersion:
        return History()

    came = [release for release in releases("added", key) if Version(release) > here]
    went = [release for release in releases("removed", key) if Version(release) <= here]
    return History(came[-1] if came else "", went[-1] if went else "")


def elsewhere(key: str, configuration: Configuration) -> list[str]:
    """Keys of the tree with the same last name, in a section that shares a name, most similar first."""
    *sections, leaf = key.split(".")
    if len(key) > _LONGEST:
        return []
    found = [
        other
        for other in all_keys(configuration)
        if other.rpartition(".")[2] == leaf
        and (not sections or not set(sections).isdisjoint(other.split(".")[:-1]))
    ]
    return sorted(found, key=lambda other: -difflib.SequenceMatcher(None, key, other).ratio())


def alike(key: str, configuration: Configuration) -> str:
    """The key of which this may be a typo; empty if none is similar enough."""
    above, _, leaf = key.rpartition(".")
    if len(key) > _LONGEST:
        return ""
    values = [
        other for other in all_keys(configuration) if not isinstance(configuration.default(other), Mapping)
    ]
    leaves = {
        name: other
        for place, _, name, other in ((*other.rpartition("."), other) for other in values)
        if place == above and _same_words(leaf, name)
    }
    longer = [name for name in leaves if set(_WORD.findall(leaf)) < set(_WORD.findall(name))]
    if len(longer) > 1:  # what verl leaves unset by default is meant less often
        unset = {name for name in longer if configuration.default(leaves[name]) is None}
        leaves = {name: other for name, other in leaves.items() if name not in unset} or leaves
    elif longer and len(leaves) == 1:
        return leaves[longer[0]]
    if near := difflib.get_close_matches(leaf, leaves, 1, _CLOSE):
        return leaves[near[0]]
    if short := [other for name, other in _of_section(values, above) if _abbreviates(leaf, name)]:
        return short[0] if len(short) == 1 else ""
    begun = [other for name, other in _of_section(values, above) if name.startswith(f"{leaf}_")]
    if len(begun) == 1 and len(leaf) > 2:
        return begun[0]
    everywhere = {_sorted(other): other for other in values if _same_words(key, other)}
    near = difflib.get_close_matches(_sorted(key), everywhere, 1, 0.9)
    return everywhere[near[0]] if near else ""


def is_slip(key: str, meant: str) -> bool:
    """Whether a key is clearly a typo of the other: just one name on its path is misspelt or abbreviated."""
    names, others = key.split("."), meant.split(".")
    different = [pair for pair in zip(names, others, strict=False) if pair[0] != pair[1]]
    if len(names) != len(others) or len(different) != 1:
        return False
    (name, other) = different[0]
    return difflib.SequenceMatcher(None, name, other).ratio() >= _PLAIN or _abbreviates(name, other)


def _of_section(keys: Iterable[str], above: str) -> Iterator[tuple[str, str]]:
    """Yield the last name of each key of a section, with the key."""
    return ((key.rpartition(".")[2], key) for key in keys if key.rpartition(".")[0] == above)


def _abbreviates(leaf: str, name: str) -> bool:
    """Whether one name abbreviates the other.

    Each word of one is a prefix of the other's, in either direction (`max_len`), or one name has the other's
    initials (`lr`).
    """
    ours, theirs = _WORD.findall(leaf), _WORD.findall(name)
    for short, words in ((name, ours), (leaf, theirs)):
        if len(words) > 1 and short == "".join(word[0] for word in words):
            return True
    return len(ours) == len(theirs) > 1 and all(
        part == other
        or (min(len(part), len(other)) >= 3 and (part.startswith(other) or other.startswith(part)))
        for part, other in zip(ours, theirs, strict=True)
    )


def _sorted(key: str) -> str:
    """The key with its words sorted: `ranks_all` equals `all_ranks`."""
    return ".".join(sorted(_WORD.findall(key)))


def _same_words(key: str, other: str) -> bool:
    """Whether one is the other with a typo or a word left out.

    `grad_offload` resembles `param_offload`, but means something else.
    """
    ours, theirs = Counter(_WORD.findall(key)), Counter(_WORD.findall(other))
    added, missing = [*(ours - theirs).elements()], [*(theirs - ours).elements()]
    if not added or not missing:  # an additional word is there on purpose
        return not added and len(missing) <= 1
    return difflib.SequenceMatcher(None, "".join(added), "".join(missing)).ratio() >= _CLOSE


def without_added(configuration: Configuration) -> Configuration:
    """The configuration without the keys that the user's own files add to verl's."""
    return (
        replace(configuration, before=_without(configuration.before, configuration.added, ""))
        if configuration.added
        else configuration
    )


def _without(tree: Mapping[str, Any], keys: tuple[str, ...], above: str) -> dict[str, Any]:
    return {
        name: _without(value, keys, f"{above}{name}.") if isinstance(value, Mapping) else value
        for name, value in tree.items()
        if f"{above}{name}" not in keys or isinstance(value, Mapping)
    }


def all_keys(configuration: Configuration) -> Iterator[str]:
    """Every dotted key of the tree."""
    return _keys(configuration.before, "")


def _keys(tree: Mapping[str, Any], above: str) -> Iterator[str]:
    for name, value in tree.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")
