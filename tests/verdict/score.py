"""What the scoreboard counts: forecasts and readings of logs beside what really happened."""

from __future__ import annotations

import functools
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verdict.case import HERE, Case, Real

from verl_doctor.toolkit.logs.document import document
from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.sources import sources_of
from verl_doctor.toolkit.rule import PHASES

LOGS = HERE / "logs.tar.xz"
FORETELLABLE = frozenset({"script", "files", "packages", "configuration"})
"""Causes that can be seen before the job runs."""

# "start" is how a rule says: at the start of the engine, or later.
_FROM_START = frozenset(PHASES[PHASES.index("engine") :])


@dataclass(frozen=True)
class Row:
    """A case that was run and decided, and a forecast of it."""

    case: Case
    real: Real
    fails: bool
    codes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.real.outcome in {"died", "hung"}

    @property
    def counts(self) -> bool:
        """Whether it is a failure that could have been foretold."""
        return self.failed and self.case.cause in FORETELLABLE

    @property
    def is_false_alarm(self) -> bool:
        return self.fails and self.real.outcome == "trained"

    @property
    def phase_is_right(self) -> bool:
        """Whether the first phase that was named is the one in which it happened."""
        named = [phase for phase in PHASES if phase in self.phases]
        return bool(named) and is_phase(named[0], self.real.phase)


def is_phase(named: str, real: str | None) -> bool:
    return named == real or (named == "start" and real in _FROM_START)


def share(part: Iterable[bool]) -> str:
    """How many of them hold, as `3 of 4 (75 %)`."""
    held = list(part)
    return f"{sum(held)} of {len(held)} ({100 * sum(held) / len(held):.0f} %)" if held else "none"


@functools.cache
def logs() -> Mapping[str, str]:
    """The logs of jobs that failed, by case."""
    with tarfile.open(LOGS) as archive:
        return {
            member.name.removesuffix(".log"): archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }


@dataclass(frozen=True)
class Diagnosis:
    """What `logs` made of a log: the words of the first cause, "" when none is named, its code, and its phase."""

    words: str
    code: str
    phase: str

    def is_right(self, real: Real) -> bool:
        """Whether that is what was raised first, or what it was turned into."""
        turned, _, words = real.turned.partition(": ")
        raised = [(real.raised, real.text), (turned, words)]
        return bool(self.words) and any(
            name.rpartition(".")[2] in self.words and text[:40].strip() in self.words
            for name, text in raised
            if name or text
        )


def diagnosed(text: str) -> Diagnosis:
    """Read a log as `verl-doctor logs` does."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write(text)
        file.flush()
        found = document(diagnose(sources_of([file.name])))
    if not found["results"]:
        return Diagnosis("", "", "")
    first = found["results"][0]
    finding = first["findings"][0]
    words = "\n".join([finding["evidence"]["found"], *finding["evidence"]["lines"]])
    return Diagnosis(words, first["code"], finding.get("phase") or "")


def pack(folders: Iterable[Path], names: Iterable[str]) -> None:
    """Put the logs of these cases, which the runner left as `NAME.log.gz`, into the archive."""
    import gzip
    import io

    found = {
        path.name.removesuffix(".log.gz"): path for folder in folders for path in folder.glob("*.log.gz")
    }
    with tarfile.open(LOGS, "w:xz", preset=9) as archive:
        for name in sorted(found.keys() & set(names)):
            text = gzip.decompress(found[name].read_bytes())
            entry = tarfile.TarInfo(f"{name}.log")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
