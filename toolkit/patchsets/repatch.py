"""Apply stored patches to a source tree: the changes, or why a patch has no place there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.change import ReplaceFile
from verl_doctor.toolkit.patchsets import patchset
from verl_doctor.toolkit.patchsets.line_patch import LinePatch, applied, place_of
from verl_doctor.toolkit.patchsets.patch_state import content_of
from verl_doctor.toolkit.patchsets.patchset import AnyPatch, NoPlace, Patch
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import Unreadable, parse
from verl_doctor.toolkit.sources.python.unbound import unbound


def changes(
    waiting: Iterable[AnyPatch], folder: Path, states: dict[AnyPatch, str], checkout: Path | None = None
) -> Iterator[ReplaceFile]:
    """Yield the changes that apply patches to the tree in `folder`; those without a place get their state.

    `checkout` is the folder around the tree, for patches of the files next to it.
    """
    by_file: dict[tuple[str, str], list[AnyPatch]] = {}
    for patch in waiting:
        base = patch.base if isinstance(patch, LinePatch) else "package"
        by_file.setdefault((base, patch.path), []).append(patch)
    for (base, name), fitting in by_file.items():
        top = folder if base == "package" else checkout
        if top is None:
            states.update(
                dict.fromkeys(fitting, "refused: this verl is installed, it has no checkout around it")
            )
            continue
        try:
            before, after = _changed(top, name, fitting, states)
        except CannotEdit as reason:
            states.update({patch: f"refused: {reason}" for patch in fitting if patch not in states})
            continue
        if after != before:
            yield ReplaceFile(top / name, before, after)


def _changed(
    top: Path, name: str, fitting: Iterable[AnyPatch], states: dict[AnyPatch, str]
) -> tuple[bytes, bytes]:
    """Return a file before and after: first the patches located by syntax, then those located by lines."""
    before = content_of(name, top)
    if isinstance(before, Unreadable):
        raise CannotEdit(before.reason)
    path, after = top / name, before
    if by_syntax := [patch for patch in fitting if isinstance(patch, Patch)]:
        after = _patched(SourceText(before, str(path)), by_syntax, states)
    if by_lines := [patch for patch in fitting if isinstance(patch, LinePatch)]:
        after = _with_lines(after, path, by_lines, states)
    return before, after


def _with_lines(
    source: bytes, path: Path, fitting: Iterable[LinePatch], states: dict[AnyPatch, str]
) -> bytes:
    """Return a file with the patches located by lines, each applied to the result of the previous ones."""
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise CannotEdit(f"{path} is not valid UTF-8: {error.reason}") from None
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    for patch in fitting:
        place = place_of(patch, lines)
        if isinstance(place, str):
            states[patch] = f"refused: {place}"
            continue
        changed = applied(patch, place, lines)
        if path.suffix == ".py" and _breaks(lines, changed, path):
            states[patch] = "refused: the file would be no Python with it"
            continue
        lines = changed
    return newline.join(lines).encode()


def _breaks(before: list[str], after: list[str], path: Path) -> bool:
    """Return whether only the new lines are invalid Python."""
    old, new = (parse("\n".join(lines).encode(), path) for lines in (before, after))
    return isinstance(new, Unreadable) and not isinstance(old, Unreadable)


def _patched(source: SourceText, fitting: Iterable[Patch], states: dict[AnyPatch, str]) -> bytes:
    """Locate all patches in the unchanged source, then apply the last edit first.

    Earlier offsets thus stay valid.

    A patch that reads a name without a binding here is rejected: the same statement may occur in another
    function.
    """
    edits: list[tuple[Edit, Patch]] = []
    for patch in fitting:
        edit = patchset.edit_for(patch, source)
        if isinstance(edit, NoPlace):
            states[patch] = f"refused: {edit.reason}"
        else:
            edits.append((edit, patch))
    known = unbound(source.tree, source.text)
    while True:
        after = source.to_bytes(source.text)
        for edit, patch in sorted(edits, key=lambda pair: pair[0].start, reverse=True):
            after = SourceText(after, source.path).edited([edit], f"# {patch.marker}")
        edited = SourceText(after, source.path)
        new = unbound(edited.tree, edited.text) - known
        lost = {patch: name for _, patch in edits for name in sorted(new) if name in patch.new}
        if not lost:
            return after
        states.update(
            {patch: f"refused: it uses {name}, which is not known here" for patch, name in lost.items()}
        )
        edits = [pair for pair in edits if pair[1] not in lost]
