"""The commit of the verl tree: from the git checkout around it, or from the one that pip installed.

Git's files are read; git itself is not run, since a checkout may name programs that it would start
(git-config(1), core.fsmonitor).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.system.secret import without_user

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST = 8 * 1024 * 1024  # bytes of packed-refs: a hundred thousand branches
_LINKS = 5  # symbolic refs that are followed
_UP = 3  # folders above the package in which a checkout may begin


@dataclass(frozen=True)
class Checkout:
    """The commit of a checkout: `commit` is the full hash, `branch` "" if none is checked out.

    `read_from` is the file that contains the hash. Whether files were changed since is recorded in `Markers`
    and `Records`.
    """

    commit: str
    branch: str = ""
    read_from: str = ""
    url: str = ""


@collector(kept=True)
def checkout(trees: VerlTrees, packages: Packages | Unknown) -> Checkout | Unknown:
    """Look above the tree for a checkout, then in pip's record of verl's installation (PEP 610)."""
    folder = Path(trees.imported.folder)
    if trees.imported.place != "site-packages":
        for above in list(folder.parents)[:_UP]:
            if os.path.lexists(above / ".git"):
                return _of_git(above)
    installed = None if isinstance(packages, Unknown) else packages.get("verl")
    origin = _installed(f"{installed.location}/direct_url.json") if installed is not None else None
    return origin or Absent("the files of this verl do not show that it comes from git")


def _of_git(folder: Path) -> Checkout | Unknown:
    try:
        home = _home(folder / ".git")
        name = _text(home / "HEAD")
        branch = ""
        for _ in range(_LINKS):
            if not name.startswith("ref: "):
                break
            branch = name.removeprefix("ref: ")
            name = _named(home, branch)
    except (OSError, ValueError) as error:
        return Unknown(
            f"the checkout in {folder} cannot be read: {getattr(error, 'strerror', None) or error}"
        )
    if not _COMMIT.fullmatch(name):
        return Unknown(f"the checkout in {folder} does not record its commit")
    return Checkout(name, branch.removeprefix("refs/heads/"), str(home / "HEAD"))


def _home(git: Path) -> Path:
    """Return the folder of git's own files.

    It is `.git`, or the folder that a file of that name points to (gitrepository-layout(5)).
    """
    if os.path.isdir(git):
        return git
    git_folder = _text(git).removeprefix("gitdir: ")
    return Path(os.path.normpath(git.parent / git_folder))


def _named(home: Path, branch: str) -> str:
    """Return the commit of a branch, "" if not recorded.

    The branches of a linked worktree are stored with the main one.
    """
    shared = home
    if os.path.isfile(home / "commondir"):
        shared = Path(os.path.normpath(home / _text(home / "commondir")))
    for place in (home, shared):
        if ".." not in branch and os.path.isfile(place / branch):
            return _text(place / branch)
    packed = shared / "packed-refs"
    for line in _text(packed).splitlines() if os.path.isfile(packed) else ():
        commit, _, name = line.partition(" ")
        if name == branch:
            return commit
    return ""


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST).decode("utf-8", "replace").strip()


def _installed(path: str) -> Checkout | None:
    try:
        document = json.loads(_text(Path(path)))
        commit = document["vcs_info"]["commit_id"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        return None
    return Checkout(commit, read_from=path, url=without_user(str(document.get("url", ""))))
