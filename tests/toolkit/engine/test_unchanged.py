"""Results of an earlier check are reused only while their sources are unchanged."""

from __future__ import annotations

import glob
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.engine import kept_index
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.engine.unchanged import remembering
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.result import CheckResult
from verl_doctor.toolkit.rule import Evidence, Finding, Location, check
from verl_doctor.toolkit.system import cache
from verl_doctor.toolkit.system.looks import states
from verl_doctor.toolkit.target import Target


@dataclass(frozen=True)
class Weather:
    """A fact that changes by itself."""

    sun: str


@dataclass(frozen=True)
class Things:
    """Entries of the current folder."""

    seen: tuple[str, ...]
    weather: str = ""


@dataclass(frozen=True)
class Number:
    """Number of entries."""

    things: int


counts = {"things": 0, "rule": 0}
sun = ["shines"]


@collector()
def weather(machine: Machine) -> Weather:
    """Look out of the window."""
    return Weather(sun[0])


@collector(kept=True)
def things(machine: Machine, weather: Weather, target: Target) -> Things:
    """Look at them in many ways."""
    counts["things"] += 1
    top = machine.cwd
    seen = [
        f"{entry.name} {entry.is_dir()} {entry.stat().st_mode if entry.name.endswith('.py') else ''}"
        for entry in os.scandir(top / "package")
    ]
    seen.append((top / "read").read_text())
    seen.append(str(os.path.exists(top / "maybe" / "later")))
    seen.append(str((top / "link").resolve()))
    seen.append(str(os.access(top / "closed", os.W_OK)))
    seen += sorted(glob.glob(str(top / "pattern" / "*.txt")))  # noqa: PTH207 - one of the ways
    seen += sorted(path.name for path in (top / "tree").rglob("*.txt"))
    seen.append(machine.environ.get("COLOUR", ""))
    return Things(tuple(sorted(seen)), weather.sun)


@collector(kept=True)
def number(things: Things) -> Number | Unknown:
    """Count them."""
    return Number(len(things.seen)) if "none" not in things.seen else Absent("none")


@check("HOST901")
def too_many(number: Number, things: Things) -> Iterator[Finding]:
    """There are things."""
    counts["rule"] += 1
    yield Finding(" ".join(things.seen), Evidence(things.weather), location=Location("here", number.things))


@check("HOST902")
def no_sun(weather: Weather) -> Iterator[Finding]:
    """It rains."""
    if weather.sun == "rain":
        yield Finding("rain", Evidence("rain"))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change counts at once: the tests would have to wait for two seconds before each."""
    monkeypatch.setattr(states, "_TICKS", dict.fromkeys(states._TICKS, -60.0))
    sun[0] = "shines"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("package", "package/inner", "tree/below", "pattern", "maybe", "other"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (
        "package/one.py",
        "package/two.so",
        "read",
        "closed",
        "tree/below/x.txt",
        "pattern/a.txt",
        "other/o",
    ):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("read")
    (tmp_path / "package" / "linked").symlink_to("../other")
    return tmp_path


def session(place: Path, **environ: str) -> Session:
    machine = Machine({"HOME": str(place), **environ}, place)
    registry = Registry((too_many, no_sun), (), (weather, things, number), (), PluginProblems())
    return Session(machine, Target(Path("/bin/python"), "--python"), Config(), registry, Selection())


def judged(session: Session) -> tuple[list[CheckResult], int | None]:
    """Results of a check, and how many are reused."""
    with remembering(session) as run:
        report = run.check(run.look())
    return list(report.results), report.unchanged.rules if report.unchanged else None


def afresh(session: Session) -> list[CheckResult]:
    return list(session.check(session.look()).results)


def later() -> None:
    """Kernel time advances."""
    time.sleep(0.02)


def in_place(path: Path, text: str) -> None:
    """Other content of the same size, with the file's own times put back."""
    about = path.stat()
    with path.open("r+") as file:
        file.write(text.ljust(about.st_size)[: about.st_size])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def replaced(path: Path, text: str) -> None:
    """Another file of the same size and times under the same name."""
    about = path.stat()
    new = path.with_name("new-file")
    new.write_text(text.ljust(about.st_size)[: about.st_size])
    os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))
    new.replace(path)


def retargeted(link: Path, to: str) -> None:
    new = link.with_name("new-link")
    new.symlink_to(to)
    new.replace(link)


CHANGES: Mapping[str, Callable[[Path], object]] = {
    "a file is edited": lambda place: (place / "read").write_text("something else"),
    "a file is edited, and size and times are put back": lambda place: in_place(place / "read", "abcd"),
    "a file is replaced by one of the same size and times": lambda place: replaced(place / "read", "abcd"),
    "a file goes": lambda place: (place / "pattern" / "a.txt").unlink(),
    "a file appears in a folder that was searched": lambda place: (place / "pattern" / "b.txt").write_text(
        ""
    ),
    "a file appears deep in a tree": lambda place: (place / "tree" / "below" / "y.txt").write_text(""),
    "a folder appears in a tree": lambda place: (place / "tree" / "new.txt").mkdir(),
    "a file appears that was looked for": lambda place: (place / "maybe" / "later").write_text(""),
    "a folder becomes a file": lambda place: (
        (place / "package" / "inner").rmdir(),
        (place / "package" / "inner").write_text(""),
    ),
    "the mode of an entry changes": lambda place: (place / "package" / "one.py").chmod(0o755),
    "a link leads elsewhere": lambda place: retargeted(place / "link", "closed"),
    "the folder behind an entry that is a link becomes a file": lambda place: (
        shutil.rmtree(place / "other"),
        (place / "other").write_text(""),
    ),
    "a folder is replaced by an equal one": lambda place: (
        shutil.copytree(place / "tree", place / "copy"),
        (place / "copy" / "below" / "z.txt").write_text(""),
        (place / "tree").rename(place / "old"),
        (place / "copy").rename(place / "tree"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_relevant_change_is_noticed(place: Path, change: str) -> None:
    here = session(place)
    first, reused = judged(here)
    assert reused is None
    later()
    assert judged(here) == (first, 2)
    later()
    CHANGES[change](place)
    second, reused = judged(here)
    assert reused is None
    assert second == afresh(here)
    assert (
        change
        in (
            "a folder is replaced by an equal one",
            "the mode of an entry changes",
        )
        or second != first
    )
    later()
    assert judged(here) == (second, 2)


def test_unchanged_environment_is_not_collected_again(place: Path) -> None:
    here = session(place)
    judged(here)
    before = dict(counts)
    judged(here)
    assert counts == before


@pytest.mark.slow
def test_changing_facts_are_collected_again(place: Path) -> None:
    here = session(place)
    judged(here)
    sun[0] = "rain"
    results, reused = judged(here)
    assert reused is None
    assert results == afresh(here)
    assert [result.status for result in results] == ["fail", "fail"]
    assert judged(here) == (results, 2)
    sun[0] = "shines"
    assert judged(here)[1] is None


def test_permission(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission checks are repeated: a mount may have become read-only."""
    here = session(place)
    judged(here)
    access = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode, **more: not str(path).endswith("closed") and access(path, mode, **more),
    )
    assert judged(here)[1] is None


@pytest.mark.parametrize(
    "other",
    [
        lambda here: replace(
            here, machine=replace(here.machine, environ={**here.machine.environ, "COLOUR": "red"})
        ),
        lambda here: replace(here, target=replace(here.target, python=Path("/usr/bin/python3"))),
        lambda here: replace(here, target=replace(here.target, words=("trainer.x=1",))),
        lambda here: replace(here, config=Config(marker="ours")),
    ],
)
def test_other_options_give_a_separate_result(place: Path, other: Callable[[Session], Session]) -> None:
    here = session(place)
    judged(here)
    results, reused = judged(other(here))
    assert reused is None
    assert results == afresh(other(here))


def test_changed_doctor_ignores_the_record(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = session(place)
    judged(here)
    monkeypatch.setattr(kept_index, "state", lambda: "other sources")
    assert judged(here)[1] is None


@pytest.mark.parametrize("hours", [-1, 25], ids=["set back", "a day later"])
def test_clock(place: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    here = session(place)
    judged(here)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + hours * 3600)
    assert judged(here)[1] is None


def test_recent_changes_are_not_relied_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file just written may be written again within a clock tick."""
    monkeypatch.setattr(states, "_TICKS", dict.fromkeys(states._TICKS, 2.0))
    here = session(place)
    judged(here)
    assert judged(here)[1] is None


def test_file_systems_without_reliable_times(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_TICKS", {})
    here = session(place)
    judged(here)
    assert judged(here)[1] is None


def record(place: Path) -> Path:
    (file,) = (cache.top() / "unchanged").iterdir()
    return file


def test_record_writable_by_others_is_ignored(place: Path) -> None:
    here = session(place)
    judged(here)
    file = record(place)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert judged(here)[1] is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: json.dumps({**json.loads(text), "looks": {"rows": [[1]], "access": []}}),
        lambda text: json.dumps({**json.loads(text), "looks": None}),
        lambda text: json.dumps({**json.loads(text), "taken": "today"}),
        lambda text: json.dumps({**json.loads(text), "values": {}}),
        lambda text: json.dumps({**json.loads(text), "outcomes": {"HOST901": {"status": 7}}}),
        lambda text: json.dumps({**json.loads(text), "outcomes": []}),
        lambda text: json.dumps({**json.loads(text), "values": []}),
        lambda text: json.dumps({**json.loads(text), "compared": 1}),
        lambda text: "[" * 100_000,
    ],
)
def test_damaged_record(place: Path, damage: Callable[[str], str]) -> None:
    here = session(place)
    first, _ = judged(here)
    file = record(place)
    file.write_text(damage(file.read_text()))
    assert judged(here)[0] == first


@pytest.mark.slow
def test_fact_from_a_started_program_is_not_recorded(place: Path) -> None:
    @collector(kept=True)
    def hasty(machine: Machine, weather: Weather, target: Target) -> Things:
        """Start a program."""
        return Things((str(os.spawnlp(os.P_WAIT, "true", "true")),))

    here = session(place)
    registry = replace(here.registry, collectors=(weather, hasty, number))
    judged(replace(here, registry=registry))
    assert judged(replace(here, registry=registry))[1] is None


@pytest.mark.slow
def test_unknown_fact_is_not_recorded(place: Path) -> None:
    """A slow disk may be the reason. A missing file is certain."""
    answers: list[Unknown] = [Unknown("too slow"), Absent("none")]

    @collector(kept=True)
    def numbered(things: Things) -> Number | Unknown:
        """Look once more."""
        return answers[0]

    here = session(place)
    here = replace(here, registry=replace(here.registry, collectors=(weather, things, numbered)))
    judged(here)
    assert judged(here)[1] == 1
    for file in (cache.top() / "unchanged").iterdir():
        file.unlink()
    del answers[0]
    judged(here)
    assert judged(here)[1] == 2


def test_selected_rules_use_the_record_without_replacing_it(place: Path) -> None:
    here = session(place)
    first, _ = judged(here)
    assert judged(here.narrowed(("HOST901",))) == (first[:1], 1)
    assert judged(here) == (first, 2)
