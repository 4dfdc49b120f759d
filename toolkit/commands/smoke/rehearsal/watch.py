"""Reads along while verl trains: what it has reached, and whether it waits for something that will never come.

Each pattern is what a program says at that point, so that a rehearsal ends in a sentence where training would wait without end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.commands.smoke.child import End
from verl_doctor.toolkit.commands.smoke.rehearsal.waits import FAILED
from verl_doctor.toolkit.commands.smoke.rung import Step
from verl_doctor.toolkit.rule import Phase

# What shows that a part is over, in the order of a step, and the phase in which a fault strikes there. Each is a line of verl's or Ray's.
MARKS: tuple[tuple[str, str, Phase], ...] = (
    (
        "imports",
        r"ray init kwargs|Started a local Ray instance|Connecting to existing Ray cluster",
        "composition",
    ),
    ("Ray", r"\((?:TaskRunner\w*|main_task) pid=\d+\)", "ray"),
    ("data", r"Total training steps:", "workers"),
    ("workers", r"\(WorkerDict pid=\d+\)", "workers"),
    (
        "model",
        r"actor and ref model engine initialized|After building \w+ rollout|\(vLLMHttpServer pid=",
        "workers",
    ),
    ("rollout server", r"LLMServerManager:|all initialize finished|AgentLoopManager:", "engine"),
    ("first weights", r"Training Progress:\s+0%", "first batch"),
    ("step", r"\bstep:1 - ", "first update"),
)
"""The parts of a run, the words that end each, and its phase: verl 0.9; an earlier release prints some of them only."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NO_NODE = re.compile(r"No available node types can fulfill resource requests? (.+?)(?:\. |$)", re.MULTILINE)
# What vLLM says when it gives up a call or its engine (vllm/v1/engine/core.py, core_client.py, v1/executor/multiproc_executor.py): who made
# the call may never hear of it. Other processes run the user's own code, which may print anything, and survive it.
_ENGINE_FAILED = re.compile(
    r"^\((?:\w*vLLM\w*|WorkerDict|EngineCore\w*) pid=\d+\).*(?:WorkerProc hit an exception|Invocation of \S+ method failed"
    r"|EngineCore (?:encountered a fatal error|failed to start)|EngineDeadError|[Pp]roc \S+ died unexpectedly)",
    re.MULTILINE,
)
_UNREACHED = re.compile(r"Failed to connect to GCS|gcs_rpc_client.*Failed|Could not read 'temp_dir' from GCS")
_QUIET_AFTER_FAILURE = 45.0  # seconds; verl's own retries speak more often
_WORKING = (
    0.5  # of the time; of a trainer that waits no thread had more than 0.2, with a load of 12 on two cores
)
_LOOKED_BACK = 30.0  # seconds over which that is the mean
_QUIET = 60.0  # seconds until Ray is asked, and between two questions
_INSISTED = (
    2  # times that Ray's autoscaler says that it has no such node; once may come before a node has joined
)


@dataclass(frozen=True)
class Reached:
    """A part of the run that is over, and the seconds since its beginning."""

    name: str
    seconds: float


class Watcher:
    """Given to `Stage.run`: called with the text so far about once a second, it may end the run with a reason.

    `waits_for` is asked, when nothing has been said for long, what of Ray's the trainer waits for in vain; None when that is nothing. `wanted` says
    how many seconds each thread of the processes with these numbers has wanted to compute: those that work silently are let alone.
    """

    def __init__(
        self,
        waits_for: Callable[[], End | None],
        wanted: Callable[[Iterable[int]], Mapping[int, float]] = lambda _: {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waits_for, self._wanted, self._clock = waits_for, wanted, clock
        self._begun = self._spoke = clock()
        self._length = self._read_to = 0
        self._failed = False
        self._queried = self._begun
        self._work: list[
            tuple[float, Mapping[int, float]]
        ] = []  # when it was looked at, and what was wanted by then
        self._refused = 0
        self.reached: list[Reached] = []

    def __call__(self, text: str) -> End | None:
        """Read what is new. An end ends the run."""
        now = self._clock()
        if len(text) > self._length:
            end = text.rfind("\n") + 1
            self._length, self._spoke = len(text), now
            new, self._read_to = _COLOUR.sub("", text[self._read_to : end]), end
            if end_of_run := self._read(new, now):
                return end_of_run
        return self._silence(now)

    def look(self, kin: Collection[tuple[int, int]]) -> None:
        """See how much these processes want to compute. They are named by number and start."""
        now = self._clock()
        self._work = [sample for sample in self._work if sample[0] >= now - _LOOKED_BACK]
        self._work.append((now, self._wanted(pid for pid, _ in kin)))

    def steps(self) -> tuple[Step, ...]:
        """How long each part took."""
        ends = [0.0, *(reached.seconds for reached in self.reached)]
        return tuple(
            Step(reached.name, reached.seconds - begun)
            for reached, begun in zip(self.reached, ends, strict=False)
        )

    @property
    def part(self) -> str:
        """The part that was going on at the end."""
        names = [name for name, _, _ in MARKS]
        last = names.index(self.reached[-1].name) + 1 if self.reached else 0
        return names[last] if last < len(names) else ""

    @property
    def phase(self) -> Phase:
        """The phase in which the run was at the end."""
        return next((phase for name, _, phase in MARKS if name == self.part), "first update")

    def _read(self, new: str, now: float) -> End | None:
        known = {reached.name for reached in self.reached}
        for name, pattern, _ in MARKS:
            if name not in known and re.search(pattern, new):
                self.reached.append(Reached(name, now - self._begun))
        self._failed = self._failed or _ENGINE_FAILED.search(new) is not None
        requests = _NO_NODE.findall(new)
        self._refused += len(requests)
        if self._refused >= _INSISTED and requests:
            return End("no node", f"Ray has no node with {requests[-1]}, and waits for one without end")
        if _UNREACHED.search(new) and not self._is_past("Ray"):
            return End("no answer from Ray", "the Ray cluster that it was led to does not answer")
        return None

    def _is_past(self, name: str) -> bool:
        return any(reached.name == name for reached in self.reached)

    def _silence(self, now: float) -> End | None:
        quiet = now - self._spoke
        if self._works():
            return None
        if self._failed and quiet > _QUIET_AFTER_FAILURE:
            silence = f"nothing was heard for {quiet:.0f} s: the trainer waits for it without end"
            return End("process failed", f"{FAILED}: vLLM's engine, and {silence}")
        if now - max(self._spoke, self._queried) > _QUIET:
            self._queried = now
            if waits := self._waits_for():
                return End(waits.kind, f"nothing was heard for {quiet:.0f} s: {waits.sentence}")
        return None

    def _works(self) -> bool:
        """Whether some thread has wanted to compute most of the time of late."""
        if not self._work:
            return False
        (begun, before), (now, after) = self._work[0], self._work[-1]
        return any(
            wanted - before.get(thread, 0.0) > _WORKING * (now - begun) for thread, wanted in after.items()
        )


def plain(text: str) -> str:
    """A log without the colours that Ray gives to the names of processes."""
    return _COLOUR.sub("", text)
