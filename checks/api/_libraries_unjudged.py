"""What the rules about verl's other libraries cannot judge: files that the doctor could not read for uses."""

from __future__ import annotations

from verl_doctor.checks.api import _unread as unread
from verl_doctor.toolkit.collectors.api.uses import LibraryUses
from verl_doctor.toolkit.rule import Unjudged


def libraries_unjudged(uses: LibraryUses) -> tuple[Unjudged, ...]:
    """The files of verl and of the libraries that only the doctor cannot read."""
    files = (*uses.unread, *(file for library in uses.answers for file in library.unread))
    return unread.unjudged(files)
