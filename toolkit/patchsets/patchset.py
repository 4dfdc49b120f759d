"""Patches of a source tree as portable data: where each belongs, what it replaces, and the replacement.

A patch is located by the syntax tree of the statements that it changes. It fits a tree with moved lines and
different comments, and none with different code.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.engine.saved_document import SavedFile
from verl_doctor.toolkit.marker import is_marker
from verl_doctor.toolkit.patchsets.line_patch import LinePatch
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.match import Step, digest, enclosing, follow, matches, steps_to
from verl_doctor.toolkit.sources.python.restore import Hunk, Restored
from verl_doctor.toolkit.sources.python.source import walk
from verl_doctor.toolkit.system.ownership import why_named_not_ours
from verl_doctor.toolkit.system.secret import may_hold_secret
from verl_doctor.toolkit.target import UsageError

SCHEMA_VERSION = 1
_FILE = SavedFile(
    kind="file of patches",
    key="patches",
    content=list,
    make="verl-doctor patches export FILE",
    again="export the patches again",
    version=SCHEMA_VERSION,
    largest=16,
)


@dataclass(frozen=True)
class Patch:
    """One patch.

    `path` is below the tree's folder, `scope` the function or class around it, "" for the module.

    `statements` are digests of the syntax trees of the statements that it changes, `steps` leads from a
    single statement to the node with the replaced text (empty: the whole text). `old` and `new` are that
    text, without the first statement's indentation in all lines after the first. `marker` ends its lines,
    `line` is its original line.
    """

    path: str
    scope: str
    statements: tuple[str, ...]
    steps: tuple[Step, ...]
    old: str
    new: str
    marker: str
    line: int

    @property
    def identity(self) -> tuple[object, ...]:
        """What two trees with this patch have in common."""
        return self.path, self.scope, self.statements, self.steps, self.marker, "".join(self.new.split())

    @property
    def place(self) -> str:
        """Its place in readable form."""
        return f"{self.path}:{self.line}" + (f" in {self.scope}" if self.scope else "")


@dataclass(frozen=True)
class NotCarried:
    """A patch that a file of patches cannot hold, and the reason."""

    path: str
    line: int
    marker: str
    reason: str


AnyPatch = Patch | LinePatch


def patches_of(path: str, before: Restored) -> Iterator[Patch | NotCarried]:
    """Yield the patches of one file, derived from its present and its previous content."""
    try:
        source = SourceText(before.text.encode(), path) if before.hunks else None
    except CannotEdit as reason:
        yield from (NotCarried(path, hunk.first, hunk.marker, str(reason)) for hunk, _ in before.hunks)
        return
    for hunk, line in before.hunks:
        if source is not None:
            yield _patch(path, source, hunk, line)


def _patch(path: str, source: SourceText, hunk: Hunk, line: int) -> Patch | NotCarried:
    if any(map(may_hold_secret, (*hunk.old, *hunk.new))):
        return NotCarried(path, hunk.first, hunk.marker, "a line of it looks as if it held a secret")
    place = enclosing(source.tree, line, line + len(hunk.old) - 1)
    if place is None:
        return NotCarried(path, hunk.first, hunk.marker, "it replaces no whole statement")
    start, end, text = _smallest(source, hunk, line)
    steps: tuple[Step, ...] = ()
    first, last = place.statements[0], place.statements[-1]
    around = (source.start(first), source.end(last))
    if len(place.statements) == 1:
        for node in walk(first):
            span = _span(source, node)
            if span and span[0] <= start and end <= span[1] and span[1] - span[0] <= around[1] - around[0]:
                steps, around = steps_to(first, node) or (), span
    if not around[0] <= start <= end <= around[1]:
        return NotCarried(
            path, hunk.first, hunk.marker, "it changes more than the statements that it stands in"
        )
    old = source.text[slice(*around)]
    new = source.text[around[0] : start] + text + source.text[end : around[1]]
    indent = source.indent(first)
    return Patch(
        path,
        place.scope,
        tuple(map(digest, place.statements)),
        steps,
        _dedented(old, indent),
        _dedented(new, indent),
        hunk.marker,
        hunk.first,
    )


def _smallest(source: SourceText, hunk: Hunk, line: int) -> tuple[int, int, str]:
    """Return the shortest replacement that turns the old lines into the new: from, to (offsets), text."""
    begin = source.line_start(line)
    newline = source.newline
    old, new = newline.join(hunk.old), newline.join(hunk.new)
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    rest = min(len(old), len(new)) - same
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    return begin + same, begin + len(old) - tail, new[same : len(new) - tail]


def _span(source: SourceText, node: ast.AST) -> tuple[int, int] | None:
    if not isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.arg, ast.alias)):
        return None
    return source.start(node), source.end(node)


def _dedented(text: str, indent: str) -> str:
    first, *rest = text.splitlines() or [""]
    if indent and all(not line.strip() or line.startswith(indent) for line in rest):
        rest = [line.removeprefix(indent) for line in rest]
    return "\n".join([first, *rest])


@dataclass(frozen=True)
class NoPlace:
    """Why a patch has no place in a source, or no unique one."""

    reason: str


def edit_for(patch: Patch, source: SourceText) -> Edit | NoPlace:
    """Return the edit that applies a patch to a source."""
    found = matches(source.tree, patch.scope, patch.statements)
    if len(found) > 1:
        lines = ", ".join(str(place.line) for place in found)
        return NoPlace(f"the code that it replaces stands there {len(found)} times, in lines {lines}")
    if not found:
        return NoPlace(_nearest(patch, source))
    first, last = found[0].statements[0], found[0].statements[-1]
    node = follow(first, patch.steps) if patch.steps else None
    span = (source.start(first), source.end(last))
    if patch.steps:
        inner = _span(source, node) if node is not None else None
        if inner is None:
            return NoPlace("the file of patches is damaged: it leads to no part of the statement")
        span = inner
    return Edit(*span, source.indented(patch.new, first))


def _nearest(patch: Patch, source: SourceText) -> str:
    """Return why there is no place, with the line that is most similar to the expected code."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - only for a refusal

    wanted = " ".join(patch.old.split())
    best, line = 0.5, 0
    for node in walk(source.tree):
        if isinstance(node, (ast.stmt, ast.keyword)) and abs(len(source.of(node)) - len(patch.old)) < 200:
            ratio = SequenceMatcher(None, wanted, " ".join(source.of(node).split())).quick_ratio()
            if ratio > best:
                best, line = ratio, node.lineno
    where = f"in {patch.scope} " if patch.scope else ""
    return f"the code that it replaces is not {where}there" + (
        f"; the nearest is in line {line}" if line else ""
    )


def dump(patches: Iterable[AnyPatch], verl: str, doctor: str) -> str:
    """Return patches as the content of a file; `verl` is the version of the tree that they were found in."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "verl_doctor": doctor,
        "verl": verl,
        "patches": as_entries(patches),
    }
    return json.dumps(document, indent=1) + "\n"


def load(path: Path) -> list[AnyPatch]:
    """Read a file of patches.

    Raises UsageError if it is invalid, of another version, or may be another user's work.
    """
    if os.path.isfile(path) and (why := why_named_not_ours(path)):
        raise UsageError(
            f"{path} is not obeyed, because another user could have written it: {why}; read it, and if "
            "you trust it name a copy of your own"
        )
    return patches_in(_FILE.read(path), path)


def patches_in(entries: Iterable[Any], path: Path) -> list[AnyPatch]:
    """Return the patches from the output of `as_entries`.

    Raises UsageError, naming their file, if one is damaged.
    """
    return [_patch_from(path, number, entry) for number, entry in enumerate(entries, 1)]


def as_entries(patches: Iterable[AnyPatch]) -> list[dict[str, Any]]:
    """Return patches as JSON types."""
    return [asdict(patch) for patch in patches]


def _patch_from(path: Path, number: int, entry: Any) -> AnyPatch:
    import dacite  # noqa: PLC0415 - only a file of patches needs it

    kind: type[AnyPatch] = LinePatch if isinstance(entry, dict) and "base" in entry else Patch
    try:
        patch = dacite.from_dict(kind, entry, dacite.Config(cast=[tuple], check_types=True))
    except (dacite.DaciteError, TypeError, ValueError, AttributeError, RecursionError):
        patch = None
    if patch is None or not _is_whole(patch):
        raise UsageError(f"{path}: patch {number} is damaged; make one with: {_FILE.make}")
    return patch


def _is_whole(patch: AnyPatch) -> bool:
    """Return whether a patch from a file is complete and its place is below its folder."""
    if Path(patch.path).is_absolute() or ".." in Path(patch.path).parts or not is_marker(patch.marker):
        return False
    if isinstance(patch, Patch):
        return bool(patch.statements)
    lines = (*patch.before, *patch.old, *patch.new, *patch.after)
    return (
        bool(patch.new) and patch.base in {"package", "checkout"} and not any("\n" in line for line in lines)
    )
