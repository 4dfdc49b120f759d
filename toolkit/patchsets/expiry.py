"""Whether patches are still needed: replaced code is judged as if restored, and nothing is changed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.patchsets.patched import PatchedFile
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.process.locked_folder import temporary_folder
from verl_doctor.toolkit.sources.python.restore import Hunk, restored
from verl_doctor.toolkit.sources.python.source import parse, walk

Need = Literal["needed", "expired", "not judged"]


def needs(session: Session, folder: Path, files: Iterable[PatchedFile]) -> dict[AnyPatch, Need]:
    """Return for each patch whether its rule would report a fault without it.

    Each rule judges a copy of the tree, made of links, without the patches for that rule; the others stay,
    because one fault hides the next. Patches of other authors, or with a rule that could not be judged, are
    not called expired.
    """
    patched = list(files)
    found: dict[AnyPatch, Need] = {patch: "not judged" for file in patched for patch in file.patches}
    known = {check.code for check in session.registry.checks}
    for marker in sorted({patch.marker for patch in found}):
        code = marker.partition(":")[2].strip()
        if code in known:
            found.update(
                _judged(
                    session,
                    folder,
                    [file for file in patched if marker in file.marked.values()],
                    marker,
                    code,
                )
            )
    return found


def _judged(
    session: Session, folder: Path, files: list[PatchedFile], marker: str, code: str
) -> dict[AnyPatch, Need]:
    """Judge a tree without the patches that end in this marker, by their rule."""
    ours = marker.partition(":")[0]
    before = {
        file.path: restored(
            file.text,
            {n: marker_text for n, marker_text in file.marked.items() if marker_text == marker},
            ours,
        )
        for file in files
    }
    with _as_it_was(folder, {path: found.text for path, found in before.items()}) as shadow:
        shadowed = replace(session, target=replace(session.target, verl=shadow), begun=[]).narrowed((code,))
        report = examine(Request(shadowed)).report
        if not any(result.status in {"pass", "warn", "fail"} for result in report.results):
            return {}
        blamed = {
            (place.path, place.line)
            for _, finding in report.findings()
            for place in (finding.location, *finding.also)
            if place is not None
        }
        found: dict[AnyPatch, Need] = {}
        for file in files:
            lines = {
                hunk.first: _lines(before[file.path].text, hunk, line)
                for hunk, line in before[file.path].hunks
            }
            for patch in file.patches:
                if patch.marker == marker and patch.line in lines:
                    blamed_here = any((str(shadow / file.path), line) in blamed for line in lines[patch.line])
                    found[patch] = "needed" if blamed_here else "expired"
        return found


def _lines(text: str, hunk: Hunk, first: int) -> frozenset[int]:
    """Return the lines where a rule may report the old code of a patch.

    They are its own, and the start of a function around it.
    """
    tree = parse(text.encode(), Path("<unpatched>"))
    around = (
        node.lineno
        for node in (walk(tree) if isinstance(tree, ast.Module) else ())
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= first <= (node.end_lineno or node.lineno)
    )
    return frozenset([*range(first, first + len(hunk.old)), *around])


@contextmanager
def _as_it_was(folder: Path, texts: Mapping[str, str]) -> Iterator[Path]:
    """Make a temporary copy of a tree from links, with other contents in these files."""
    with temporary_folder() as parent:
        shadow = Path(parent, folder.name)
        for place, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            below = shadow / Path(place).relative_to(folder)
            below.mkdir()
            for name in names:
                text = texts.get(str(Path(place, name).relative_to(folder)))
                if text is None:
                    (below / name).symlink_to(Path(place, name).resolve())
                else:
                    (below / name).write_text(text, encoding="utf-8", newline="")
        yield shadow
