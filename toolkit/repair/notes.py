"""Side effects of a plan, and what undo could not restore of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.change import Change, ReplaceFile
from verl_doctor.toolkit.changes import links


def notes(
    changes: Iterable[Change], environment: Path, journal: Path, *, through_links: bool
) -> tuple[str, ...]:
    """Return distinct sentences for a plan about `environment` with its journal in the folder `journal`."""
    found: dict[str, None] = {}
    for change in changes:
        if isinstance(change, ReplaceFile):
            found.update(
                dict.fromkeys(_about(change.path, environment, journal, through_links=through_links))
            )
    return tuple(found)


def _about(path: Path, environment: Path, journal: Path, *, through_links: bool) -> Iterator[str]:
    linked = links.sentence(path, through_links=through_links)
    if linked:
        yield linked
    file = links.written(path, through_links=through_links)
    if not linked and path.suffix == ".py" and not file.is_relative_to(os.path.realpath(environment)):
        yield _shared_tree(file, environment)
    try:
        seen = file.lstat()
    except OSError:
        return
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1 and not _same_disk(file, journal):
        yield (
            f"{file} is one of {seen.st_nlink} hard links to its content: the others keep it, and since "
            f"the journal {journal} is on another disk, undo restores bytes, mode, owner and times, but "
            "not the link"
        )


def _shared_tree(file: Path, environment: Path) -> str:
    """Return a plan's note on sources outside the environment, such as an editable install's."""
    tree = _package_of(file)
    others = links.using(tree, environment)
    who = ", ".join(map(str, others)) + " and every" if others else "every"
    return f"{tree} is outside {environment}: {who} other environment that uses it will change too"


def _package_of(file: Path) -> Path:
    """Return the outermost package folder of a source."""
    folder = file.parent
    while os.path.exists(folder.parent / "__init__.py"):
        folder = folder.parent
    return folder


def _same_disk(file: Path, journal: Path) -> bool:
    existing = next(folder for folder in (journal, *journal.parents) if os.path.exists(folder))
    return os.stat(existing).st_dev == file.lstat().st_dev  # noqa: PTH116 - as above
