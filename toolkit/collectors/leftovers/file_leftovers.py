"""Files and folders that dead jobs left here, each with its proof."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.collectors.leftovers.file_judgement import judged
from verl_doctor.toolkit.collectors.leftovers.files import LeftFiles
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.leftover import Kept, Leftover, Leftovers


@dataclass(frozen=True)
class FileLeftovers(Leftovers):
    """Session and spill folders, shared memory, sockets and address files."""


@collector()
def file_leftovers(files: LeftFiles) -> FileLeftovers:
    """Judge all candidates."""
    return judged_all(files)


def judged_all(files: LeftFiles) -> FileLeftovers:
    """Judge each candidate separately."""
    verdicts = [judged(file, files) for file in files.files]
    return FileLeftovers(
        tuple(verdict for verdict in verdicts if isinstance(verdict, Leftover)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, Kept)),
    )
