"""Outcome of a repair: proven by a new observation, or reported as something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from verl_doctor.toolkit.change import Change, NewFile, Refusal, ReplaceFile, RunCommand, fix
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Broken, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.repair import recorded, repair
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity, Subject, check
from verl_doctor.toolkit.target import Target


@dataclass(frozen=True)
class Words:
    """The words in two files of the current folder."""

    one: str
    two: str


@collector()
def words(machine: Machine) -> Words | Unknown:
    """Read them; a file that says "unreadable" cannot be."""
    one, two = ((machine.cwd / name).read_text() for name in ("one", "two"))
    return Broken("one cannot be read") if one == "unreadable" else Words(one, two)


@check("HOST901")
def bad_words(words: Words) -> Iterator[Finding]:
    """A word is bad, or merely poor."""
    for name, word in (("one", words.one), ("two", words.two)):
        if word in {"bad", "dire", "poor"}:
            severity: Severity = "warning" if word == "poor" else "error"
            yield Finding(f"{name} is {word}", Evidence(word), fix="mend", severity=severity)


@check("HOST902")
def ugly_words(words: Words) -> Iterator[Finding]:
    """A word is ugly."""
    if "ugly" in (words.one, words.two):
        yield Finding("ugly", Evidence("ugly"))


@check("HOST903", requires={"HOST901"})
def short_words(words: Words) -> Iterator[Finding]:
    """A word is short; nobody asks while one is bad."""
    if len(words.two) < 4:
        yield Finding("short", Evidence(words.two))


Planner = Callable[[str, str, Path], list[Change] | Refusal]


def mending(plan: Planner, safety: str = "safe"):
    @fix("mend", repairs="HOST901", safety=safety)
    def mend(finding: Finding, words: Words, machine: Machine) -> list[Change] | Refusal:
        """Mend the word."""
        name = finding.message.split()[0]
        return plan(name, getattr(words, name), machine.cwd)

    return mend


def writing(content: str) -> Planner:
    return lambda name, said, folder: [ReplaceFile(folder / name, said.encode(), content.encode())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one").write_text("bad")
    (tmp_path / "two").write_text("good")
    return tmp_path


def session(folder: Path, plan: Planner, safety: str = "safe", select: tuple[str, ...] = ()) -> Session:
    registry = Registry(
        (bad_words, ugly_words, short_words), (mending(plan, safety),), (words,), (), PluginProblems(())
    )
    target = Target(folder / "bin" / "python", "--python")
    return Session(Machine(cwd=folder), target, Config(), registry, Selection(select=select))


def carried_out(run: Session, *, unsafe: bool = False) -> Report:
    collection = run.look()
    return repair.carry_out(run, collection, run.check(collection), unsafe=unsafe)


def outcomes(report: Report) -> list[str]:
    return [done.outcome for done in report.repairs or ()]


def reasons(report: Report) -> list[str]:
    return [done.reason for done in report.repairs or ()]


def test_repair_is_proven_by_observing_again(folder: Path) -> None:
    report = carried_out(session(folder, writing("fine")))
    assert outcomes(report) == ["repaired"]
    assert repair.exit_code(report) == 0
    assert (folder / "one").read_text() == "fine"
    assert report.verdict == "ok"


def test_plan_changes_nothing(folder: Path) -> None:
    run = session(folder, writing("fine"))
    collection = run.look()
    report = repair.show(run, collection, run.check(collection))
    assert outcomes(report) == ["planned"]
    assert "+fine" in (report.repairs or ())[0].diff
    assert (folder / "one").read_text() == "bad"


def test_change_without_effect_is_still_failing_and_undone(folder: Path) -> None:
    run = session(folder, lambda name, said, place: [NewFile(place / "unrelated", b"x")])
    report = carried_out(run)
    assert outcomes(report) == ["still failing"]
    assert reasons(report) == ["HOST901 still reports the same findings, so the change was undone"]
    assert not (folder / "unrelated").exists()
    assert repair.exit_code(report) == 1


def in_turn(words: dict[str, str]) -> Planner:
    """A fix that replaces each of these words by another, and refuses the rest."""

    def plan(name: str, word: str, place: Path) -> list[Change] | Refusal:
        return (
            writing(words[word])(name, word, place) if word in words else Refusal("no better word is known")
        )

    return plan


@pytest.mark.parametrize("words", [{"bad": "dire"}, {"bad": "dire", "dire": "bad"}])
def test_edit_that_only_changes_the_finding_is_undone(folder: Path, words: dict[str, str]) -> None:
    before = (folder / "one").stat()
    report = carried_out(session(folder, in_turn(words)))
    assert set(outcomes(report)) == {"still failing"}
    assert {done.transaction for done in report.repairs or ()} == {None}
    assert (folder / "one").read_text() == "bad"
    assert (folder / "one").stat().st_mtime_ns == before.st_mtime_ns
    assert repair.exit_code(report) == 1


def test_reason_for_an_undone_edit_is_what_was_found_after_it(folder: Path) -> None:
    report = carried_out(session(folder, in_turn({"bad": "dire"})))
    assert reasons(report) == ['after it, HOST901 reports "one is dire", so the change was undone']


def test_edits_that_help_only_together_are_kept(folder: Path) -> None:
    report = carried_out(session(folder, in_turn({"bad": "dire", "dire": "fine"})))
    assert outcomes(report) == ["repaired", "repaired"]
    assert (folder / "one").read_text() == "fine"
    assert repair.exit_code(report) == 0
    (name,) = {done.transaction for done in report.repairs or ()}
    home, _, number = (name or "").rpartition("/")
    recorded.undo_runs([recorded.parts_of(Path(home), number)])
    assert (folder / "one").read_text() == "bad"


def test_chain_of_edits_that_ends_at_a_fault_is_undone(folder: Path) -> None:
    (folder / "two").write_text("bad")
    words = {"bad": "dire", "dire": "ugly"}
    plan: Planner = lambda name, word, place: (  # noqa: E731
        in_turn(words)(name, word, place) if name == "one" else writing("fine")(name, word, place)
    )
    report = carried_out(session(folder, plan))
    assert sorted(outcomes(report)) == ["made worse, undone", "repaired", "still failing"]
    assert [(folder / name).read_text() for name in ("one", "two")] == ["bad", "fine"]


def test_edits_that_were_undone_with_the_first_are_reported_too(folder: Path) -> None:
    report = carried_out(session(folder, in_turn({"bad": "dire", "dire": "bad"})))
    assert reasons(report) == [
        'after it, HOST901 reports "one is bad", so the change was undone',
        'after it, HOST901 reports "one is dire", so the change was undone',
    ]
    assert (folder / "one").read_text() == "bad"


def test_repair_that_makes_another_rule_fail_is_undone(folder: Path) -> None:
    report = carried_out(session(folder, writing("ugly")))
    assert outcomes(report) == ["made worse, undone"]
    assert (folder / "one").read_text() == "bad"
    assert repair.exit_code(report) == 1


def test_finding_uncovered_by_a_repair_is_repaired_if_safe(folder: Path) -> None:
    hidden = "wrong"

    @check("HOST904")
    def wrong_words(words: Words) -> Iterator[Finding]:
        """A word is wrong."""
        if words.one == hidden:
            yield Finding("one is wrong", Evidence(hidden), fix="right")

    @fix("right", repairs="HOST904", safety="safe")
    def right(finding: Finding, words: Words, machine: Machine) -> list[Change] | Refusal:
        """Right the word."""
        return repairing(machine.cwd)

    def repaired(plan: Callable[[Path], list[Change] | Refusal]) -> list[str]:
        nonlocal repairing
        repairing = plan
        (folder / "one").write_text("bad")
        run = session(folder, writing(hidden))
        known = replace(
            run.registry, checks=(*run.registry.checks, wrong_words), fixes=(*run.registry.fixes, right)
        )
        return outcomes(carried_out(replace(run, registry=known)))

    repairing: Callable[[Path], list[Change] | Refusal]
    assert repaired(lambda place: [ReplaceFile(place / "one", hidden.encode(), b"fine")]) == ["repaired"] * 2
    assert (folder / "one").read_text() == "fine"
    assert repaired(lambda place: Refusal("no")) == ["made worse, undone"]
    assert (folder / "one").read_text() == "bad"


def test_repair_that_makes_the_rule_unjudgeable_is_undone(folder: Path) -> None:
    report = carried_out(session(folder, writing("unreadable")))
    assert outcomes(report) == ["made worse, undone"]
    assert (folder / "one").read_text() == "bad"


def test_previously_masked_rule_does_not_count_as_worse(folder: Path) -> None:
    (folder / "two").write_text("abc")
    report = carried_out(session(folder, writing("fine")))
    assert outcomes(report) == ["repaired"]
    assert report.verdict == "failures"


def test_each_finding_is_repaired_and_judged_separately(folder: Path) -> None:
    (folder / "two").write_text("bad")
    only_one: Planner = lambda name, said, place: (  # noqa: E731
        writing("fine")(name, said, place) if name == "one" else [NewFile(place / "unrelated", b"x")]
    )
    report = carried_out(session(folder, only_one))
    assert sorted(outcomes(report)) == ["repaired", "still failing"]
    assert repair.exit_code(report) == 1


def test_refusal_is_reported_and_fails(folder: Path) -> None:
    report = carried_out(session(folder, lambda *_: Refusal("this form is not known")))
    assert outcomes(report) == ["refused"]
    assert (report.repairs or ())[0].reason == "this form is not known"
    assert repair.exit_code(report) == 1


@pytest.mark.parametrize(("other", "outcome"), [("poor", "not attempted"), ("bad", "refused")])
def test_refusal_without_remaining_errors_is_not_a_failure(folder: Path, other: str, outcome: str) -> None:
    (folder / "two").write_text(other)
    plan: Planner = lambda name, word, place: (  # noqa: E731
        writing("fine")(name, word, place) if name == "one" else Refusal("no better word is known")
    )
    report = carried_out(session(folder, plan))
    assert sorted(outcomes(report)) == sorted(["repaired", outcome])
    assert repair.exit_code(report) == (0 if other == "poor" else 1)


def test_broken_fix_is_refused(folder: Path) -> None:
    report = carried_out(session(folder, lambda *_: list.pop([])))
    assert outcomes(report) == ["refused"]
    assert "IndexError" in (report.repairs or ())[0].reason


def test_file_changed_since_observation_is_refused(folder: Path) -> None:
    report = carried_out(
        session(folder, lambda name, said, place: [ReplaceFile(place / name, b"other", b"fine")])
    )
    assert outcomes(report) == ["refused"]
    assert (folder / "one").read_text() == "bad"


def test_constantly_changing_file_is_refused(folder: Path) -> None:
    numbers = iter(range(50))

    def plan(name: str, _said: str, place: Path) -> list[Change] | Refusal:
        return [ReplaceFile(place / name, str(next(numbers)).encode(), b"fine")]

    assert outcomes(carried_out(session(folder, plan))) == ["refused"] * 3


def test_irreversible_change_requires_a_request(folder: Path) -> None:
    command: Planner = lambda name, said, place: [RunCommand(("touch", str(place / "ran")), "why")]  # noqa: E731
    for declared in ("unsafe", "safe"):
        report = carried_out(session(folder, command, declared))
        assert outcomes(report) == ["not attempted"]
        assert [ended.reason.partition(";")[0] for ended in report.repairs or ()] == ["it cannot be undone"]
        assert repair.exit_code(report) == 1, "the fault is still there"
        assert not (folder / "ran").exists()


def test_irreversible_change_is_made_with_unsafe(folder: Path) -> None:
    command: Planner = lambda name, said, place: [  # noqa: E731
        RunCommand(("sh", "-c", f"printf fine > {place / name}"), "why")
    ]
    report = carried_out(session(folder, command, "unsafe"), unsafe=True)
    assert outcomes(report) == ["repaired"]


@pytest.mark.parametrize(
    ("word", "select", "planned"), [("poor", (), 0), ("poor", ("HOST901",), 1), ("bad", (), 1)]
)
def test_packages_are_installed_for_a_mere_warning_about_a_script_only_if_selected(
    folder: Path, word: str, select: tuple[str, ...], planned: int
) -> None:
    (folder / "one").write_text(word)

    def install(name: str, word: str, place: Path) -> list[Change] | Refusal:
        return [RunCommand(("true",), "pip")]

    run = session(folder, install, "unsafe", select)
    [mend] = run.registry.fixes
    mend.plan.__module__ = "verl_doctor.patches.install.mend"
    for files, count in ((), 1), ((folder / "run.sh",), planned):
        here = replace(run, target=replace(run.target, files=files))
        collection = here.look()
        assert len(repair.plans(here, collection, here.check(collection))) == count


def test_manual_repair_is_only_shown(folder: Path) -> None:
    assert outcomes(carried_out(session(folder, writing("fine"), "manual"), unsafe=True)) == ["not attempted"]
    assert (folder / "one").read_text() == "bad"


@dataclass(frozen=True)
class Strangers:
    """The Rays of others that run on this machine."""

    count: int


def meanwhile(folder: Path, found: Callable[[Path], Finding], *, about_words: bool = False) -> list[str]:
    """Outcome of a repair with a simultaneous new error, whose rule reads the same facts or not."""

    @collector()
    def strangers(machine: Machine) -> Strangers:
        """One more once the repair is there."""
        return Strangers(int((machine.cwd / "one").read_text() == "fine"))

    @check("RAY915")
    def strangers_ray(strangers: Strangers) -> Iterator[Finding]:
        """A stranger's Ray came up."""
        if strangers.count:
            yield found(folder)

    @check("RAY916")
    def fine_words(words: Words) -> Iterator[Finding]:
        """A word is fine."""
        if words.one == "fine":
            yield found(folder)

    run = session(folder, writing("fine"))
    checks = (*run.registry.checks, fine_words if about_words else strangers_ray)
    known = replace(run.registry, checks=checks, collectors=(words, strangers))
    return outcomes(carried_out(replace(run, registry=known)))


ELSEWHERE: dict[str, Callable[[Path], Finding]] = {
    "a cluster": lambda _: Finding("up", Evidence("x"), subject=Subject("cluster", "10.0.0.1:6379")),
    "a process": lambda _: Finding("up", Evidence("x"), subject=Subject("process", "4711")),
    "a full disk": lambda folder: Finding("up", Evidence("x"), subject=Subject("folder", str(folder))),
    "a place in another file": lambda folder: Finding("up", Evidence("x"), Location(str(folder / "two"), 1)),
    "a rule that reads other things": lambda _: Finding("up", Evidence("x")),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_repair_is_not_blamed_for_unrelated_new_findings(folder: Path, what: str) -> None:
    assert meanwhile(folder, ELSEWHERE[what]) == ["repaired"]
    assert (folder / "one").read_text() == "fine"


@pytest.mark.parametrize("what", ["a cluster", "a process", "a full disk", "a place in another file"])
def test_repair_is_not_blamed_for_unrelated_findings_of_the_same_fact(folder: Path, what: str) -> None:
    assert meanwhile(folder, ELSEWHERE[what], about_words=True) == ["repaired"]


OURS: dict[str, Callable[[Path], Finding]] = {
    "its file": lambda folder: Finding("bad", Evidence("x"), Location(str(folder / "one"), 7)),
    "its file as the subject": lambda f: Finding(
        "bad", Evidence("x"), subject=Subject("file", str(f / "one"))
    ),
    "its file besides": lambda folder: Finding(
        "bad", Evidence("x"), Location("/x"), also=(Location(str(folder / "." / "one")),)
    ),
}


@pytest.mark.parametrize("what", OURS)
def test_repair_is_blamed_for_findings_about_its_file(folder: Path, what: str) -> None:
    assert meanwhile(folder, OURS[what]) == ["made worse, undone"]
    assert (folder / "one").read_text() == "bad"


def test_repair_of_a_script_is_not_blamed_for_what_fails_with_the_old_text_too(folder: Path) -> None:
    """Another program damages a file that the rule reads beside the script, while the script is repaired."""

    @collector()
    def strangers(machine: Machine) -> Strangers:
        """The file is damaged as soon as the repair is there."""
        return Strangers(int((machine.cwd / "one").read_text() == "fine"))

    @check("RAY917")
    def damaged(words: Words, strangers: Strangers) -> Iterator[Finding]:
        """A file beside the script is damaged."""
        if strangers.count:
            yield Finding("damaged", Evidence("x"), subject=Subject("file", str(folder / "other")))

    run = session(folder, writing("fine"))
    known = replace(run.registry, checks=(*run.registry.checks, damaged), collectors=(words, strangers))
    target = replace(run.target, files=(folder / "one",))
    assert outcomes(carried_out(replace(run, registry=known, target=target))) == ["repaired"]
    assert (folder / "one").read_text() == "fine"


def test_several_repairs_of_one_run_share_a_transaction(folder: Path) -> None:
    (folder / "two").write_text("bad")
    report = carried_out(session(folder, writing("fine")))
    first, second = (done.transaction for done in report.repairs or ())
    assert first is not None
    assert first == second
    home, _, number = first.rpartition("/")
    done, refused = recorded.undo_runs([recorded.parts_of(Path(home), number)])
    assert (len(done), refused) == (1, [])
    assert [(folder / name).read_text() for name in ("one", "two")] == ["bad", "bad"]
    # The next run has a number of its own.
    (third, *_) = (done.transaction for done in carried_out(session(folder, writing("fine"))).repairs or ())
    assert third not in {None, first}


def test_plan_lists_other_affected_environments(folder: Path) -> None:
    """One file of each kind: in an environment with a link to the outside, and in a tree outside."""
    environment, tree = folder / "env", folder / "tree"
    for prefix in (environment, folder / "other"):
        (prefix / "bin").mkdir(parents=True)
        (prefix / "pyvenv.cfg").touch()
        (prefix / "one.py").symlink_to(folder / "one")
    (tree / "verl").mkdir(parents=True)
    (tree / "verl/x.py").write_text("x")
    changes: list[Change] = [
        ReplaceFile(environment / "one.py", b"bad", b"fine"),
        ReplaceFile(tree / "verl/x.py", b"x", b"y"),
    ]

    def notes(*, through_links: bool) -> str:
        run = session(folder, lambda *_: changes)
        run = replace(run, target=Target(environment / "bin/python", "--python"))
        collection = run.look()
        shown = repair.show(run, collection, run.check(collection), through_links=through_links)
        return "\n".join((shown.repairs or ())[0].notes)

    assert f"{environment / 'one.py'} is a link to {folder / 'one'}: it becomes a private copy" in notes(
        through_links=False
    )
    assert f"{folder / 'other'} and all others that lead there do not change" in notes(through_links=False)
    assert f"{folder / 'other'} will change too" in notes(through_links=True)
    assert f"{tree / 'verl'} is outside {environment}: every other environment" in notes(through_links=False)
