"""The engine's single entry point: examines a target, whatever the source of its facts.

This machine (with bare trees that the options may name), a facts file, and launch files one by one are the
engine's own sources. Sources with several machines are defined in the packages above, `cluster` and
`snapshot`, and come with the request.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.result import Report

Watch = Callable[[str], None]
"""Receives a short sentence for each step."""

Look = Callable[[], Collection]

HERE = "this machine"
"""`facts_of` where this machine is judged together with others."""


def unwatched(_: str) -> None:
    """Show no progress."""


class Source(Protocol):
    """Where facts come from, and how they are judged. The defaults suit a single machine."""

    @property
    def facts_of(self) -> str:
        """The machine whose facts `look` returns where several are judged; "" where there is only one."""
        return ""

    def look(self, session: Session, known: Mapping[type, Any]) -> Collection:
        """Begin a fresh look at this machine, or at the session's facts file.

        Facts that are `known` are not observed.
        """
        return session.look(known)

    @abstractmethod
    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge everything that the source holds.

        `look` begins this source's look, or returns the one already begun.
        """


@dataclass(frozen=True)
class OneMachine(Source):
    """This machine, or the machine whose facts file the session reads."""

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge that look."""
        return session.check(look(), watch)


@dataclass(frozen=True)
class Request:
    """What is examined: a session's target and rules, seen through a source.

    Facts that are `known` are not observed.
    """

    session: Session
    source: Source = OneMachine()
    known: Mapping[type, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """The result: the request, the report, and the facts, as far as one machine has them."""

    request: Request
    report: Report
    _look: Look

    @property
    def session(self) -> Session:
        """The session in which it was examined."""
        return self.request.session

    @property
    def facts(self) -> Collection:
        """The facts that were judged; of several machines, those of `facts_of`, read on first use."""
        return self._look()

    @property
    def facts_of(self) -> str:
        """The machine of these facts where several were judged; "" where there is only one."""
        return self.request.source.facts_of


def observe(request: Request) -> Collection:
    """Begin the look of a request without judging.

    Raises UsageError when a file that it names is unusable.
    """
    return request.source.look(request.session, request.known)


def examine(request: Request, watch: Watch = unwatched) -> Examination:
    """Look and judge. `watch` receives each step.

    Raises UsageError when a file that the source names is unusable, CouldNotQuery when none of its nodes can
    be reached.
    """
    look = functools.cache(functools.partial(observe, request))
    return Examination(request, request.source.judge(request.session, look, watch), look)
