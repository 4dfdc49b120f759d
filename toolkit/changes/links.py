"""Links out of an environment, which uv and conda create on request.

Other environments may link to the same files.

A repair of one environment must not change the others, so such a link becomes a private copy unless the user
requests a change through it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import (
    Change,
    CompileBytecode,
    InstallPackages,
    NewFile,
    NewLink,
    RemoveFile,
    ReplaceFile,
)
from verl_doctor.toolkit.system.errors import Refused

_MOST_NEIGHBOURS = 200
_SIGNS = ("pyvenv.cfg", "conda-meta")


@dataclass(frozen=True)
class LinkOut:
    """A link in an environment that leads out of it.

    `whole` means that it is the end of the path: a link to the file itself, not to a folder.
    """

    environment: Path
    link: Path
    target: Path
    whole: bool


def environment_of(path: Path) -> Path | None:
    """Return the virtual or conda environment whose folder contains a path, without following links."""
    above = Path(os.path.abspath(path)).parents
    return next((folder for folder in above if is_environment(folder)), None)


def is_environment(folder: Path) -> bool:
    """Return whether a folder is a virtual or conda environment."""
    return any(os.path.exists(folder / sign) for sign in _SIGNS)


def link_out(path: Path) -> LinkOut | None:
    """Return the first link in a path that leads out of the environment that contains the path."""
    path = Path(os.path.abspath(path))
    environment = environment_of(path)
    if environment is None:
        return None
    top = os.path.realpath(environment)
    if Path(os.path.realpath(path)).is_relative_to(top):
        return None
    on_the_way = [folder for folder in reversed(path.parents) if folder.is_relative_to(environment)][1:]
    for part in (*on_the_way, path):
        target = Path(os.path.realpath(part))
        if part.is_symlink() and not target.is_relative_to(top):
            return LinkOut(environment, part, target, whole=part == path)
    return None


def written(path: Path, *, through_links: bool) -> Path:
    """Return the file that a change of this path writes.

    It is the link itself if it, or its target, becomes a private copy.
    """
    path = Path(os.path.abspath(path))
    out = None if through_links else link_out(path)
    if out is not None:
        return Path(os.path.realpath(out.link.parent)) / out.link.name
    return Path(os.path.realpath(path))


def places(changes: Iterable[Change], *, through_links: bool = False) -> list[Path]:
    """Return the files that changes write, in order, then the bytecode folders and the copies they create."""
    found = []
    for change in changes:
        if isinstance(change, (ReplaceFile, NewFile, RemoveFile, NewLink)):
            found.append(written(change.path, through_links=through_links))
        elif isinstance(change, CompileBytecode):
            found += change.roots
        elif isinstance(change, InstallPackages) and not change.in_place:
            found.append(change.copy)
    return found


def demand_private(path: Path) -> None:
    """Refuse a new file that would be created outside its environment, through a link to a folder."""
    out = link_out(path)
    if out is not None and not out.whole:
        raise Refused(_refusal(path, out))


def sentence(path: Path, *, through_links: bool) -> str:
    """Return a plan's note on the link in a path, "" if there is none."""
    out = link_out(path)
    if out is None:
        return ""
    if through_links:
        return (
            f"{out.link} leads to {out.target}, which is changed through the link: {_changing(out)} will "
            "change too"
        )
    others = sharing(out)
    rest = f"; {', '.join(map(str, others))} and all others that lead there do not change" if others else ""
    becomes = (
        "a private copy"
        if out.whole
        else f"a separate folder of links, in which {path.name} is a private copy"
    )
    return f"{out.link} is a link to {out.target}: it becomes {becomes}, and undo restores the link{rest}"


def sharing(out: LinkOut) -> tuple[Path, ...]:
    """Return the neighbouring environments whose path of the same name leads to the same place."""
    inside = out.link.relative_to(out.environment)
    return tuple(
        other for other in neighbours(out.environment) if os.path.realpath(other / inside) == str(out.target)
    )


def using(tree: Path, environment: Path) -> tuple[Path, ...]:
    """Return the neighbouring environments that import from a folder.

    They do so through a .pth file or an editable install's finder.
    """
    return tuple(other for other in neighbours(environment) if _names(other, tree))


def neighbours(environment: Path) -> Iterator[Path]:
    """Yield the other environments in an environment's parent folder."""
    try:
        beside = sorted(Path(os.path.realpath(environment)).parent.iterdir())[:_MOST_NEIGHBOURS]
    except OSError:
        return
    for folder in beside:
        if is_environment(folder) and os.path.realpath(folder) != os.path.realpath(environment):
            yield folder


def _refusal(path: Path, out: LinkOut) -> str:
    return (
        f"{path} is reached through {out.link}, a link to the folder {out.target} outside "
        f"{out.environment}: {_changing(out)} would change too; pass --through-links to change it "
        "anyway, or first replace the link with a copy of the folder"
    )


def _changing(out: LinkOut) -> str:
    others = sharing(out)
    return ", ".join(map(str, others)) if others else "every environment that leads there"


def _names(environment: Path, tree: Path) -> bool:
    wanted = [os.fsencode(os.path.realpath(folder)) for folder in (tree, tree.parent)]
    for site in environment.glob("lib/python*/site-packages"):
        for file in (*site.glob("*.pth"), *site.glob("__editable__*.py")):
            try:
                content = file.read_bytes()[:1_000_000]
            except OSError:
                continue
            if any(f"{name.decode('utf-8', 'replace')}" in _paths_in(content) for name in wanted):
                return True
    return False


def _paths_in(content: bytes) -> frozenset[str]:
    """Return the lines of a .pth file, and the quoted texts of a finder."""
    text = content.decode("utf-8", "replace")
    quoted = text.replace('"', "'").split("'")[1::2]
    return frozenset(line.strip().rstrip("/") for line in (*text.splitlines(), *quoted))
