"""What a process of a job reports about its start: finished and open phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from verl_doctor.toolkit.logs.timeline.phases import PhaseReport
from verl_doctor.toolkit.logs.timeline.speakers import Key, kind_of
from verl_doctor.toolkit.logs.timeline.timeline import Proof, Span


@dataclass(frozen=True)
class _Bar:
    """The last state that a progress bar showed."""

    seconds: float
    time: float | None
    is_whole: bool
    proof: Proof


@dataclass
class Process:
    """One process: name, node, the process in whose output it prints, first line, and open phases."""

    name: str
    node: str = ""
    parent: Key | None = None
    first: Proof | None = None
    has_vllm: bool = False
    begun: dict[str, tuple[float | None, Proof]] = field(default_factory=dict)
    _bars: dict[str, _Bar] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of process."""
        return kind_of(self.name)

    def advance(
        self, phase_reports: Sequence[PhaseReport], time: float | None, proof: Proof
    ) -> Iterator[Span]:
        """Process what a line reports, and yield the phases that end with it."""
        finished = {report.phase for report in phase_reports if report.kind == "told"}
        for phase in [
            phase_name for phase_name in self.begun if phase_name != "step" and finished - {phase_name}
        ]:
            del self.begun[phase]  # it began something else without logging when
        for report in phase_reports:
            if report.kind == "told" and report.seconds is not None:
                self.begun.pop(report.phase, None)
                yield until(report.phase, report.seconds, time, proof)
            elif report.kind == "begin":
                self.begun.setdefault(report.phase, (time, proof))
            elif report.kind == "end":
                yield from self.ended(report.phase, time, proof)
            elif report.kind == "bar" and report.seconds is not None:
                yield from self._moved_on(report.phase, _Bar(report.seconds, time, report.is_whole, proof))

    def ended(self, phase: str, time: float | None, proof: Proof) -> Iterator[Span]:
        """Yield a phase that ends here, if its beginning was seen."""
        if phase not in self.begun:
            return
        began, first = self.begun.pop(phase)
        seconds = None if time is None or began is None or time < began else time - began
        yield Span(phase, seconds, None if seconds is None else began, "between", (first, proof))

    def _moved_on(self, phase: str, bar: _Bar) -> Iterator[Span]:
        before = self._bars.get(phase)
        if before is not None and bar.seconds < before.seconds:  # another bar of this kind
            yield from self._bar_ended(phase)
        self._bars[phase] = bar

    def _bar_ended(self, phase: str) -> Iterator[Span]:
        bar = self._bars.pop(phase)
        if bar.seconds:
            yield replace(until(phase, bar.seconds, bar.time, bar.proof), is_open=not bar.is_whole)

    def left(self, end: float | None, last: Proof | None, *, is_over: bool) -> Iterator[Span]:
        """Yield the phases that are open when the log ends.

        If the start `is_over`, those that only began are omitted.
        """
        for phase in list(self._bars):
            yield from self._bar_ended(phase)
        for phase, (began, proof) in () if is_over else self.begun.items():
            seconds = None if began is None or end is None else max(end - began, 0)
            shown = (proof,) if last is None else (proof, last)
            yield Span(phase, seconds, None if seconds is None else began, "between", shown, is_open=True)


def until(phase: str, seconds: float, end: float | None, proof: Proof) -> Span:
    """Return a phase whose last line reports how long it took."""
    return Span(phase, seconds, None if end is None else end - seconds, "told", (proof,))
