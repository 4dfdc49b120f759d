"""Kill a transaction at every system call that changes a file, and let every such call fail, and look at what is left.

`survive` works on any tree and plan: tests of fixes hand in real files.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash import tracing, trees
from crash.children import run_as
from crash.tracing import Act

from verl_doctor.toolkit.change import Change, ReplaceFile
from verl_doctor.toolkit.changes import apply as engine

HOME = ".verl-doctor"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")
_FAR_AHEAD = 4_102_444_800
Tree = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Tally:
    """How many system calls were found in which job, and how many runs ended there by a kill or an error."""

    calls: dict[str, int]
    kills: int
    errors: int

    def __str__(self) -> str:
        jobs = ", ".join(f"{count} in {job}" for job, count in self.calls.items())
        points = sum(self.calls.values())
        return f"{points} points ({jobs}): {self.kills} kills and {self.errors} errors survived"


def survive(
    build: Callable[[Path], None],
    plan: Callable[[Path], Sequence[Change]],
    where: Path,
    user: int | None = None,
) -> Tally:
    """Apply and undo `plan` on the tree made by `build`, stopped at every point in every way.

    Works in the empty folder `where`. The jobs run as `user` if one is given. Raises AssertionError, naming the point.
    """
    return _Trial(build, plan, where, user).run()


def tree(root: Path) -> Tree:
    """All that must come back: names, kinds, bytes, modes, owners, attributes. Not the journal; for times see `identities`."""
    found: Tree = {}
    for folder, folders, names in os.walk(root):
        if HOME in folders:
            folders.remove(HOME)
        for name in (*folders, *names):
            path = Path(folder, name)
            found[str(path.relative_to(root))] = _description(path)
    return found


def identities(root: Path) -> dict[str, tuple[int, int, bool]]:
    """The times of the sources and links, how many links each has, and whether it is the link that it was. Not those of folders."""
    found = {}
    for name, what in tree(root).items():
        if what[0] in {"file", "link"}:
            about = (root / name).lstat()
            found[name] = about.st_mtime_ns, about.st_nlink, (root / name).is_symlink()
    return found


class _Trial:
    """One tree and plan. The tree is always at the same path, because the journal speaks of paths."""

    def __init__(
        self,
        build: Callable[[Path], None],
        plan: Callable[[Path], Sequence[Change]],
        where: Path,
        user: int | None,
    ) -> None:
        self.root, self.where, self.user = where / "tree", where, user
        self.starts_programs = plan in trees.STARTING_PROGRAMS
        self.home = self.root / HOME
        self._gone_round: set[str] = set()
        self.root.mkdir()
        build(self.root)
        if user is not None:
            subprocess.run(["chown", "-hR", f"{user}:{user}", self.root], check=True)
        for name in tree(self.root):  # so far ahead that each job has to set a time as well
            os.utime(self.root / name, (_FAR_AHEAD, _FAR_AHEAD), follow_symlinks=False)
        self.changes = plan(self.root)
        self.old, self.originals = tree(self.root), identities(self.root)
        self._keep("old")
        self._do(self.apply)
        self.new = tree(self.root)
        assert self.new != self.old
        self._keep("new")

    def apply(self) -> None:
        engine.apply(self.changes, self.home, fix="trial", code="TEST001")

    def undo(self) -> None:
        engine.undo(self.home)

    def recover(self) -> None:
        engine.recover(self.home)

    def run(self) -> Tally:
        counted, kills, errors = {}, 0, 0
        for job, start, goal in (
            (self.apply, "old", "new"),
            (self.undo, "new", "old"),
            (self.recover, "half", "old"),
        ):
            if not (self.where / start).exists():  # a single rename has no half
                continue
            calls = self._stopped(job, start).calls
            assert self._is(goal), f"{job.__name__} does not do its work"
            counted[job.__name__] = len(calls)
            kills += self._kill_everywhere(job, start)
            if start == "half":
                continue
            for act in _errors(len(calls)):
                trace = self._stopped(job, start, act)
                self._look_after_an_error(
                    job, f"{job.__name__}, {act} ({calls[act.at]})", trace.said, start, goal
                )
                errors += 1
            last_step = Act(max(at for at, call in enumerate(calls) if call == "rename"), "fail", errno.EIO)
            counted[f"{job.__name__} taken back"] = (
                len(self._stopped(job, start, last_step).calls) - last_step.at - 1
            )
            kills += self._kill_everywhere(job, start, last_step)
        return Tally(counted, kills, errors)

    def _kill_everywhere(self, job: Callable[[], None], start: str, *before: Act) -> int:
        """Kill the job at each of its calls; if it fails at the call `before`, at each after that. Returns how often."""
        first = before[0].at + 1 if before else 0
        points = range(first, len(self._stopped(job, start, *before).calls))
        # Nothing changes between two calls: what a kill before a call leaves, one after the call in front of it has left already.
        kills = [*(Act(at, "kill before") for at in points[:1]), *(Act(at, "kill after") for at in points)]
        for kill in kills:
            trace = self._stopped(job, start, *before, kill)
            point = ", ".join(map(str, (job.__name__, *before, kill, trace.calls[-1])))
            assert trace.killed, f"{point} was not reached: {trace}"
            applied = self._look_after_a_kill(point, caches=not (before and job == self.undo))
            if kill.do == "kill after":
                self._go_round(point, applied)
        return len(kills)

    def _stopped(self, job: Callable[[], None], start: str, *acts: Act) -> tracing.Trace:
        shutil.rmtree(self.root)
        subprocess.run(["cp", "-a", self.where / start, self.root], check=True)
        return tracing.run(job, acts, self.user, filtered=not self.starts_programs)

    def _do(self, job: Callable[[], None]) -> None:
        if self.user is None:
            job()
        else:
            assert run_as(self.user, job) == ""

    def _keep(self, name: str) -> None:
        subprocess.run(["cp", "-a", self.root, self.where / name], check=True)

    def _is(self, wanted: str, *, caches: bool = True) -> bool:
        """Whether the tree is as `wanted`. When that is the old one, its files are the very ones that they were."""
        if wanted == "old" and identities(self.root) != self.originals:
            return False
        trees = [tree(self.root), {"old": self.old, "new": self.new}[wanted]]
        if not caches:
            trees = [
                {name: what for name, what in tree.items() if "__pycache__" not in name} for tree in trees
            ]
        return self._equal(*trees)

    def _equal(self, now: Tree, wanted: Tree) -> bool:
        """Whether two trees are equal; stale bytecode of the original may be gone."""
        gone = {name for name in self.old if name.endswith(".pyc") and name not in now}
        return now == {name: what for name, what in wanted.items() if name not in gone}

    def _look_after_a_kill(self, point: str, *, caches: bool) -> bool:
        """Everything is old or new, and after a recovery what the journal says; returns whether it is new.

        Without `caches` they may be gone: they are the one thing that an undo that failed does not put back.
        """
        now = {name: what for name, what in tree(self.root).items() if not _temporary(name)}
        for name in {*self.old, *self.new, *now}:
            allowed = (self.old.get(name), self.new.get(name), *([None] if name.endswith(".pyc") else []))
            assert now.get(name) in allowed, f"{point}: {name} is neither old nor new"
        for change in self.changes:
            if isinstance(change, ReplaceFile):
                seen = change.path.read_bytes()
                assert seen in (change.before, change.after), f"{point}: {change.path} is neither old nor new"
        if (
            not (self.where / "half").exists()
            and not self._equal(now, self.old)
            and not self._equal(now, self.new)
        ):
            self._keep("half")
        engine.history(self.home)
        self._do(self.recover)
        states = [transaction.state for transaction in engine.history(self.home)]
        applied = states == ["applied"]
        assert applied or states in ([], ["undone"]), f"{point}: the journal says {states}"
        assert self._is("new" if applied else "old", caches=caches), f"{point}: it is not as the journal says"
        return applied

    def _look_after_an_error(
        self, job: Callable[[], None], point: str, said: str, start: str, goal: str
    ) -> None:
        assert not said or said.startswith("Refused: "), f"{point}: {said}"
        wanted = start if said else goal
        if not said:  # the next doctor lets go of an original that could not be removed
            self._do(self.recover)
        assert self._is(wanted, caches=not said or job != self.undo), (
            f"{point}: it is not {wanted} after: {said or 'success'}"
        )
        if said:
            self._do(job)
        assert self._is(goal), f"{point}: it does not work afterwards"

    def _go_round(self, point: str, applied: bool) -> None:
        """Undo, apply and undo once from each state in which a recovery leaves the tree and the journal: many are alike."""
        state = repr(sorted({**tree(self.root), **tree(self.home)}.items()))
        state = _TIME.sub("", state)
        if state in self._gone_round:
            return
        self._gone_round.add(state)
        if applied:
            self._do(self.undo)
            assert self._is("old"), f"{point}: undo does not give the original back"
        self._do(self.apply)
        assert self._is("new"), f"{point}: a fresh apply does not work"
        self._do(self.undo)
        assert self._is("old"), f"{point}: a fresh undo does not work"
        assert not [*self.home.glob("*preparing"), *self.home.glob("**/*.new")], (
            f"{point}: the journal is untidy"
        )


def _errors(calls: int) -> Iterator[Act]:
    """Yield one error at each call: the change engine handles these two alike."""
    for at in range(calls):
        yield Act(at, "fail", (errno.ENOSPC, errno.EIO)[at % 2])


def _temporary(name: str) -> bool:
    """Whether it is not seen from outside: a temporary file, or a private folder, to which a link leads when it is whole."""
    return any(part.startswith((".verl-doctor-", ".verl-doctor.")) for part in Path(name).parts)


def _description(path: Path) -> tuple[Any, ...]:
    seen = path.lstat()
    owner = (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
    if stat.S_ISLNK(seen.st_mode):
        return "link", str(path.readlink())
    if stat.S_ISDIR(seen.st_mode):
        return "folder", *owner
    if not stat.S_ISREG(seen.st_mode):
        return "special", *owner
    if path.suffix == ".pyc":  # holds the time of its source
        return "bytecode", *owner
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return "file", path.read_bytes(), attributes, *owner
