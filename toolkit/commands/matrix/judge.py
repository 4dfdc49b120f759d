"""Judge one verl against one vLLM with the rules of `check`, in this process or in several in parallel."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.result_cache import fingerprint, keep, key_of, recall
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import JOB, Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.system.own_files import TOOLKIT
from verl_doctor.toolkit.target import Target

FAMILY = "VLLM"
"""The rules of a table: those of `check --tree vllm=DIR --select VLLM`."""

State = Literal["starts", "import", "start", "unknown"]

_MOST_PROCESSES = 4
_KEPT = 2000
_LONGEST = 120.0  # seconds for one fact about one pair, which takes 2 on a free core


@dataclass(frozen=True)
class Break:
    """One finding. `places` are its lines, relative to the folder around the package: "verl/workers/x.py:38".

    `fix` is the repair that `fix` carries out, None where there is none; `remedy` what else helps.
    """

    code: str
    message: str
    severity: str
    phase: str
    stops: tuple[str, ...]
    may_stop: tuple[str, ...]
    places: tuple[str, ...]
    remedy: str = ""
    fix: str | None = None


@dataclass(frozen=True)
class PathState:
    """How far one path of a job gets: it starts, or it fails during module imports or at engine start."""

    path: str
    state: State


@dataclass(frozen=True)
class Verdict:
    """The results for one pair. `reason` is why a path could not be judged, or why there is none."""

    paths: tuple[PathState, ...]
    breaks: tuple[Break, ...] = ()
    reason: str = ""

    @property
    def stopping(self) -> tuple[Break, ...]:
        """The findings that stop a path in every run."""
        return tuple(breakage for breakage in self.breaks if breakage.stops)

    @property
    def optional(self) -> tuple[Break, ...]:
        """The findings that stop a path under some setting only."""
        return tuple(breakage for breakage in self.breaks if breakage.may_stop and not breakage.stops)

    @property
    def starts(self) -> bool:
        """Whether every path of this verl starts."""
        return bool(self.paths) and all(path.state == "starts" for path in self.paths)


@dataclass(frozen=True)
class Question:
    """A pair of trees, the target that would run them, and what is already known about it."""

    target: Target
    interpreter: Interpreter | Unknown
    config: Config
    verl: Tree
    vllm: Tree
    identity: str
    """Digests of both trees, for the cache."""


@dataclass(frozen=True)
class Pending:
    """A pending question: in another process, or not started."""

    question: Question
    known: Verdict | None = None
    answer: Future[Verdict] | None = None

    def verdict(self) -> Verdict:
        """Return the verdict. If no other process returns it, the pair is judged here."""
        if self.known is not None:
            return self.known
        with suppress(BrokenProcessPool, CancelledError):
            if self.answer is not None:
                return self.answer.result()
        return _answer(self.question)


class Judges:
    """Judges questions, several at a time if the machine allows."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool

    def start(self, question: Question) -> Pending:
        """Start judging a pair, unless the result is known."""
        if (known := recall(Verdict, _key(question))) is not None:
            return Pending(question, known)
        with suppress(BrokenProcessPool, OSError, RuntimeError):  # no more processes can be started
            if self._pool is not None:
                return Pending(question, None, self._pool.submit(_answer, question))
        return Pending(question)


@contextmanager
def judges(questions: int) -> Iterator[Judges]:
    """Use as many processes as this machine has cores, limited by the number of questions.

    Submit questions in threads that have called `leave_interrupts_alone`: the processes inherit that, and an
    interrupted parent ends them itself.
    """
    workers = min(_MOST_PROCESSES, os.cpu_count() or 1, questions)
    pool = None
    if workers > 1:
        with suppress(OSError, ImportError, NotImplementedError):  # no semaphores on this machine
            pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield Judges(pool)
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def leave_interrupts_alone() -> None:
    """Deliver Ctrl-C only to the main thread, also in processes that this thread starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def identity_of(folder: str) -> str:
    """Return a digest of a tree that did not come from a wheel, for the cache."""
    return fingerprint([Path(folder)])


def _answer(question: Question) -> Verdict:
    """Judge one pair as `check` does."""
    known = _patient(question.config.disable_plugins)
    target = replace(question.target, verl=Path(question.verl.folder), vllm=Path(question.vllm.folder))
    selection = Selection((FAMILY,), ignores=question.config.ignore)
    run = Session(Machine(), target, question.config, known, selection)
    collection = run.look(
        {
            Interpreter: question.interpreter,
            VerlTrees: VerlTrees(question.verl, "it was named"),
            VllmTree: VllmTree(question.vllm),
        }
    )
    # Not Session.check, which would also read other libraries for the rules about them.
    results = judge(known.checks, collection, selection, today=date.today())  # noqa: DTZ011
    verdict = _verdict(Report({}, results), question)
    # A timeout may not recur, so it is not cached.
    if not any(result.status == "error" for result in results):
        keep(verdict, _key(question), _KEPT)
    return verdict


@cache
def _patient(disabled: tuple[str, ...]) -> Registry:
    """Allow more time for slow reads, because several pairs are read at once, perhaps on a busy machine."""
    known = registry.load(disabled)
    collectors = (
        replace(collector, timeout=max(collector.timeout, _LONGEST)) for collector in known.collectors
    )
    return replace(known, collectors=tuple(collectors))


def _verdict(report: Report, question: Question) -> Verdict:
    findings = [(result.code, finding) for result, finding in report.findings()]
    breaks = tuple(_break(code, finding, question) for code, finding in findings)
    states = []
    for path in report.paths:
        if path.path == JOB:  # no rule judged a path
            continue
        state: State = "unknown"
        if path.state == "will_fail":
            state = "import" if path.phase == "import" else "start"
        elif path.state == "no_fault_found" and not path.not_judged:
            state = "starts"
        states.append(PathState(path.path, state))
    doubt = not states or any(path.state == "unknown" for path in states)
    # Failures come first: the others follow from them.
    silent = sorted(report.results, key=lambda result: result.status != "error")
    why = [result.reason for result in silent if result.status != "pass" and result.reason]
    return Verdict(tuple(states), breaks, why[0] if doubt and why else "")


def _break(code: str, finding: Finding, question: Question) -> Break:
    places = [finding.location, *finding.also] if finding.location is not None else []
    return Break(
        code=code,
        message=finding.message,
        severity=finding.severity or "error",
        phase=finding.phase or "",
        stops=finding.stops,
        may_stop=finding.may_stop,
        places=tuple(_relative(str(place), question) for place in places),
        remedy=finding.remedy,
        fix=finding.fix,
    )


def _relative(place: str, question: Question) -> str:
    for tree in (question.verl, question.vllm):
        above = f"{Path(tree.folder).parent}{os.sep}"
        if place.startswith(above):
            return place[len(above) :]
    return place


def _key(question: Question) -> str:
    """Return all that the verdict depends on, including the dates until which the user ignores rules."""
    about = (
        question.identity,
        question.verl,
        question.vllm,
        getattr(question.interpreter, "version", ""),
        sys.version_info[:2],
        question.config,
        date.today() if question.config.ignore else None,  # noqa: DTZ011
    )
    return key_of(about, [TOOLKIT.parent / "checks"])
