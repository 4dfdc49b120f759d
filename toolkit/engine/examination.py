"""The one entry of the engine: examine a target, from whatever source its facts come.

This machine, with the bare trees that the options may name, one facts file and launch files one by one are sources of the
engine itself. Those that are several machines are in the packages above, `cluster` and `snapshot`, and come with the request.
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
"""Receives a short sentence on each thing that is being done."""

Look = Callable[[], Collection]

HERE = "this machine"
"""`facts_of` where this machine is judged together with others."""


def unwatched(_: str) -> None:
    """Show no progress."""


class Source(Protocol):
    """Where facts come from, and how they are judged. What a source does not define is as for one machine."""

    @property
    def facts_of(self) -> str:
        """Whose facts `look` returns where several machines are judged; "" where there is one."""
        return ""

    def look(self, session: Session, known: Mapping[type, Any]) -> Collection:
        """Begin a fresh look at this machine, or the one of the session's facts file. Facts that are `known` are not observed."""
        return session.look(known)

    @abstractmethod
    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge everything that the source holds. `look` begins this source's look, or returns the one that was begun."""


@dataclass(frozen=True)
class OneMachine(Source):
    """This machine, or the one whose facts file the session reads."""

    def judge(self, session: Session, look: Look, watch: Watch) -> Report:
        """Judge that look."""
        return session.check(look(), watch)


@dataclass(frozen=True)
class Request:
    """What is examined: the target and the rules of a session, seen through a source. Facts that are `known` are not observed."""

    session: Session
    source: Source = OneMachine()
    known: Mapping[type, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """What was examined: the request, the report, and the facts behind it as far as one machine has them."""

    request: Request
    report: Report
    _look: Look

    @property
    def session(self) -> Session:
        """The session in which it was examined."""
        return self.request.session

    @property
    def facts(self) -> Collection:
        """The facts that were judged; of several machines those of `facts_of`, read when they are first needed."""
        return self._look()

    @property
    def facts_of(self) -> str:
        """Whose facts these are where several machines were judged; "" where there is one."""
        return self.request.source.facts_of


def observe(request: Request) -> Collection:
    """Begin the look of a request and judge nothing. Raises UsageError when a file that it names is of no use."""
    return request.source.look(request.session, request.known)


def examine(request: Request, watch: Watch = unwatched) -> Examination:
    """Look and judge. `watch` is given what is being done.

    Raises UsageError when a file that the source names is of no use, CouldNotAsk when no node of it can be reached.
    """
    look = functools.cache(functools.partial(observe, request))
    return Examination(request, request.source.judge(request.session, look, watch), look)
