"""Find what one job left behind: what appeared while it ran and can be traced to its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.leftovers.file_judgement import judged
from verl_doctor.toolkit.collectors.leftovers.files import LeftFiles
from verl_doctor.toolkit.collectors.leftovers.processes import name, resident
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.commands.clean.clean import Found, Run, Total
from verl_doctor.toolkit.commands.clean.job import Traces, run
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import Kept, Leftover
from verl_doctor.toolkit.machine import Machine

_MIB = 1024 * 1024
_RUNS = "it runs, and may still be needed"


class Job:
    """A job that runs between two looks at the machine.

    `look` returns the facts, `find` the leftovers among them.
    """

    def __init__(
        self, look: Callable[[], Collection], find: Callable[[Collection], Found], machine: Machine
    ) -> None:
        self._look, self._find, self._machine = look, find, machine
        self._traces = Traces(machine)
        facts = look()
        before = find(facts)
        self._known = {(entry.kind, entry.name) for entry in before.everything}
        self._before = tuple(_totals(before, facts))

    def run(self, command: Sequence[str], show: Callable[[str], None]) -> Run:
        """Run the job to its end. Raises OSError if it cannot be started."""
        ended = run(command, self._traces, show)
        return Run(tuple(command), ended, self._before)

    def left(self) -> Found:
        """Return what the job has left so far."""
        return self._left(self._look())[0]

    def completed(self, so_far: Run) -> tuple[Run, Found]:
        """Return the look after the job: machine totals, the job's leftovers, and those of unknown origin."""
        facts = self._look()
        left, appeared, after = self._left(facts)
        return replace(so_far, after=after, appeared=appeared), left

    def _left(self, facts: Collection) -> tuple[Found, tuple[Kept, ...], tuple[Total, ...]]:
        self._traces.look()
        found = self._find(facts)
        entries = [entry for entry in found.everything if (entry.kind, entry.name) not in self._known]
        paths = {entry.name for entry in entries}
        living = {name(row): row for row in self._traces.living()}
        mine = [
            entry
            for entry in entries
            if (
                entry.name in living
                if entry.kind == "process"
                else self._traces.left(entry.kind, entry.name, paths)
            )
        ]
        files = facts.get(LeftFiles)
        mine = [_without_grace(entry, files) for entry in mine]
        for title in sorted(living.keys() - paths):
            mine.append(Kept("process", title, _RUNS, resident(living[title].pid, self._machine), "memory"))
        own = {(entry.kind, entry.name) for entry in mine}
        return (
            Found(
                tuple(entry for entry in mine if isinstance(entry, Leftover)),
                tuple(entry for entry in mine if isinstance(entry, Kept)),
                found.unknown,
            ),
            tuple(
                Kept(entry.kind, entry.name, "nothing shows whose it is", entry.size, entry.store)
                for entry in entries
                if (entry.kind, entry.name) not in own
            ),
            tuple(_totals(found, facts)),
        )


def _without_grace(entry: Leftover | Kept, files: LeftFiles | Unknown) -> Leftover | Kept:
    """Judge a leftover without the grace for young files, because its job has ended."""
    among = files if isinstance(files, LeftFiles) else LeftFiles()
    return next((judged(file, among, grace=0.0) for file in among.files if file.path == entry.name), entry)


def _totals(found: Found, facts: Collection) -> Iterator[Total]:
    """Yield this machine's totals over all jobs."""
    processes = facts.get(Processes)
    if isinstance(processes, Processes):
        yield Total("process", len(processes.running))
    kinds: dict[str, Total] = {}
    for entry in found.everything:
        if entry.kind != "process":
            total = kinds.get(entry.kind, Total(entry.kind))
            kinds[entry.kind] = Total(entry.kind, total.number + 1, total.size + (entry.size or 0))
    yield from (kinds[kind] for kind in sorted(kinds))
    gpus = facts.get(Gpus)
    for device in gpus.sound if isinstance(gpus, Gpus) else ():
        if device.memory is not None:
            yield Total(f"memory of GPU {device.index}", size=device.memory.used * _MIB)
