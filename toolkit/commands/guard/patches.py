"""Which of a file's agreed patches are missing, judged by its syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.markers import MarkedLine, Markers
from verl_doctor.toolkit.marker import Marker, marked_lines
from verl_doctor.toolkit.patchsets.patched import patched_files
from verl_doctor.toolkit.patchsets.patchset import AnyPatch, patches_in


def missing(entries: Iterable[Mapping[str, Any]], path: Path) -> list[AnyPatch]:
    """Return the patches of one file, as `as_entries` made them, that it does not contain.

    Raises UsageError if one is damaged.
    """
    patches = patches_in(entries, path)
    words = {patch.marker.partition(":")[0] for patch in patches}
    ours = next((patch.marker.partition(":")[0] for patch in patches if ":" in patch.marker), Marker.word)
    tree = Path(str(path).removesuffix(patches[0].path)) if patches else path.parent
    text = path.read_text("utf-8", "replace")
    marked = [
        MarkedLine(str(path), number, marker_text)
        for number, marker_text, _ in marked_lines(text, Marker(ours), words - {ours})
    ]
    present = {
        patch.identity
        for file in patched_files(Markers(str(tree), tuple(marked)), ours)
        for patch in file.patches
    }
    return [patch for patch in patches if patch.identity not in present]
