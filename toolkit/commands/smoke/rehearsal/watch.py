"""Follow verl's training: what it has reached, and whether it waits for something that will never come.

Each pattern is a message of a program at that point, so that a rehearsal ends with a sentence where training
would wait forever.
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

# Messages that end a part, in the order of a step, and the phase in which a fault there strikes. They are
# verl's or Ray's.
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
"""The parts of a run, the message that ends each, and its phase.

They are those of verl 0.9; earlier releases print only some of them.
"""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NO_NODE = re.compile(r"No available node types can fulfill resource requests? (.+?)(?:\. |$)", re.MULTILINE)
# Messages of vLLM when it gives up a call or its engine (vllm/v1/engine/core.py, core_client.py,
# v1/executor/multiproc_executor.py): the caller may never be notified. Other processes run the user's own
# code, which may print anything, and survive it.
_ENGINE_FAILED = re.compile(
    (
        r"^\((?:\w*vLLM\w*|WorkerDict|EngineCore\w*) pid=\d+\).*(?:WorkerProc hit an exception"
        r"|Invocation of \S+ method failed|EngineCore (?:encountered a fatal error|failed to start)"
        r"|EngineDeadError|[Pp]roc \S+ died unexpectedly)"
    ),
    re.MULTILINE,
)
_UNREACHED = re.compile(r"Failed to connect to GCS|gcs_rpc_client.*Failed|Could not read 'temp_dir' from GCS")
_QUIET_AFTER_FAILURE = 45.0  # seconds; verl's own retries log more often
_WORKING = 0.5  # of the time; waiting trainers had at most 0.2 per thread, with a load of 12 on two cores
_LOOKED_BACK = 30.0  # seconds over which the mean is taken
_QUIET = 60.0  # seconds of silence until Ray is queried, and between two queries
_INSISTED = 2  # times that Ray's autoscaler reports no such node; once may precede a joining node


@dataclass(frozen=True)
class Reached:
    """A completed part of the run, and the seconds since the start."""

    name: str
    seconds: float


class Watcher:
    """A `watch` for `Stage.run`, called with the text so far about once a second.

    It may end the run with a reason.

    After a long silence `waits_for` returns what the trainer waits for and Ray cannot provide; None for
    nothing. `wanted` returns the processor time that each thread of the given processes has needed, in
    seconds: processes that work silently are not ended.
    """

    def __init__(
        self,
        waits_for: Callable[[], End | None],
        wanted: Callable[[Iterable[int]], Mapping[int, float]] = lambda _: {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waits_for, self._wanted, self._clock = waits_for, wanted, clock
        self._begun = self._last_event = clock()
        self._length = self._read_to = 0
        self._failed = False
        self._queried = self._begun
        self._work: list[
            tuple[float, Mapping[int, float]]
        ] = []  # when it was measured, and the demand until then
        self._refused = 0
        self.reached: list[Reached] = []

    def __call__(self, text: str) -> End | None:
        """Read the new text. Return an end to end the run."""
        now = self._clock()
        if len(text) > self._length:
            end = text.rfind("\n") + 1
            self._length, self._last_event = len(text), now
            new, self._read_to = _COLOUR.sub("", text[self._read_to : end]), end
            if end_of_run := self._read(new, now):
                return end_of_run
        return self._silence(now)

    def look(self, kin: Collection[tuple[int, int]]) -> None:
        """Measure the processor time that these processes need. They are identified by number and start."""
        now = self._clock()
        self._work = [sample for sample in self._work if sample[0] >= now - _LOOKED_BACK]
        self._work.append((now, self._wanted(pid for pid, _ in kin)))

    def steps(self) -> tuple[Step, ...]:
        """Return the duration of each part."""
        ends = [0.0, *(reached.seconds for reached in self.reached)]
        return tuple(
            Step(reached.name, reached.seconds - begun)
            for reached, begun in zip(self.reached, ends, strict=False)
        )

    @property
    def part(self) -> str:
        """The part in progress at the end."""
        names = [name for name, _, _ in MARKS]
        last = names.index(self.reached[-1].name) + 1 if self.reached else 0
        return names[last] if last < len(names) else ""

    @property
    def phase(self) -> Phase:
        """The phase of the run at the end."""
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
            return End("no answer from Ray", "the Ray cluster that it tried to join does not respond")
        return None

    def _is_past(self, name: str) -> bool:
        return any(reached.name == name for reached in self.reached)

    def _silence(self, now: float) -> End | None:
        quiet = now - self._last_event
        if self._works():
            return None
        if self._failed and quiet > _QUIET_AFTER_FAILURE:
            silence = f"no output for {quiet:.0f} s: the trainer waits for it without end"
            return End("process failed", f"{FAILED}: vLLM's engine, and {silence}")
        if now - max(self._last_event, self._queried) > _QUIET:
            self._queried = now
            if waits := self._waits_for():
                return End(waits.kind, f"no output for {quiet:.0f} s: {waits.sentence}")
        return None

    def _works(self) -> bool:
        """Return whether some thread has recently needed a processor most of the time."""
        if not self._work:
            return False
        (begun, before), (now, after) = self._work[0], self._work[-1]
        return any(
            wanted - before.get(thread, 0.0) > _WORKING * (now - begun) for thread, wanted in after.items()
        )


def plain(text: str) -> str:
    """Return a log without Ray's colours around process names."""
    return _COLOUR.sub("", text)
