"""How often `logs` is right about failures that people have posted.

    python tests/bench/bench_threads.py [FILE ...] [-v]

`tests/bench/threads/*.toml` hold the failures, written anew in the shape of each thread. What is right was written down from the
thread before the program read the log: the word of the verdict, a text that stands in the lines that are quoted as its proof, and
one that stands in what is said to help. `|` stands between alternatives.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.causes import name_of, remedy_of
from verl_doctor.toolkit.logs.diagnosis import read, together
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.system import toml

FOLDER = Path(__file__).parent / "threads"


@dataclass(frozen=True)
class Thread:
    """A failure, and what is right about it."""

    source: str
    verdict: str
    cause: str
    remedy: str
    log: str


@dataclass(frozen=True)
class Score:
    """What the program made of it."""

    thread: Thread
    verdict: str
    words: str
    lines: str
    remedy: str
    code: str
    exit_code: int

    @property
    def is_verdict_right(self) -> bool:
        return self.verdict in self.thread.verdict.split("|")

    @property
    def is_right(self) -> bool:
        return self.is_verdict_right and _has(self.thread.cause, f"{self.words}\n{self.lines}")

    @property
    def is_remedy_right(self) -> bool:
        return self.is_right and bool(re.search(self.thread.remedy, self.remedy, re.IGNORECASE))

    @property
    def is_silent(self) -> bool:
        """Whether it reports success although something failed."""
        return self.exit_code == 0 and self.thread.verdict != "OK"


def _has(cause: str, said: str) -> bool:
    return any(part in said for part in cause.split("|"))


def threads(path: Path) -> Iterator[Thread]:
    """The failures of a file."""
    for entry in toml.loads(path.read_text("utf-8"))["thread"]:
        yield Thread(**{**entry, "log": entry["log"].lstrip("\n")})


def scored(thread: Thread) -> Score:
    """Read the log as the command does."""
    found = excerpt(BytesIO(thread.log.encode()).read)
    reading = together({"run.log": read(found.lines, "run.log")})
    answer = Answer(reading, ("run.log",), found.size)
    word, _ = headline(answer)
    if word == "NOT DETERMINED" and answer.exit_code == 0:
        word = "OK"
    told = reading.first or reading.error or next(iter(reading.consequences), None)
    words, lines = (told.words, "\n".join(told.lines)) if told is not None else ("", "")
    code, title = name_of(reading.first) if reading.first is not None else ("", "")
    if reading.first is not None and reading.first.blame is not None:
        title = ""  # it repeats the place, which names packages whatever the remedy is
    remedy = f"{title}; {remedy_of(reading.first)}" if reading.first is not None else ""
    if reading.first is None and told is not None and told.kind == "consequence":
        remedy = remedy_of(told)
    return Score(thread, word, words, lines, remedy, code, int(answer.exit_code))


def table(files: Sequence[Path], *, verbose: bool = False) -> Iterator[str]:
    """Yield a row for each file, and with `verbose` what is wrong."""
    yield "| file | logs | first cause right | remedy right | exit 0 though it failed |"
    yield "|---|---|---|---|---|"
    for path in files:
        scores = [scored(thread) for thread in threads(path)]
        right = sum(score.is_right for score in scores)
        asked = [score for score in scores if score.thread.remedy]
        helped = sum(score.is_remedy_right for score in asked)
        silent = sum(score.is_silent for score in scores)
        yield f"| {path.stem} | {len(scores)} | {right} ({right / len(scores):.0%}) | {helped} of {len(asked)} ({helped / max(len(asked), 1):.0%}) | {silent} |"
        if verbose:
            for score in scores:
                if not score.is_right or (score.thread.remedy and not score.is_remedy_right):
                    mark = "cause " if not score.is_right else "remedy"
                    yield f"  {mark} {score.thread.source}: {score.verdict} {score.code} {score.words[:100]!r}: {score.remedy[:160]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="how often logs is right about posted failures")
    parser.add_argument("files", type=Path, nargs="*", default=sorted(FOLDER.glob("*.toml")))
    parser.add_argument("-v", action="store_true", dest="verbose", help="name what is wrong")
    options = parser.parse_args()
    for line in table(options.files, verbose=options.verbose):
        print(line)


if __name__ == "__main__":
    main()
