"""The verdict to which a plan would lead, judged without writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from verl_doctor.patches.launch.script_word import script_word
from verl_doctor.patches.launch.script_word_changed import script_word_changed
from verl_doctor.toolkit.change import Change, Fix, Refusal, ReplaceFile, fix
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.installed.sources import source_files
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render.text import render
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Forecast, Report
from verl_doctor.toolkit.rule import Correction, Evidence, Finding, Location, Rewrite, Subject, check
from verl_doctor.toolkit.target import Target

SCRIPT = "python3 -m verl.trainer.main_ppo \\\n  a.one={one} \\\n  a.two={two}\n"


def words(launch: Launch) -> tuple[Word, ...]:
    return launch.command.words if launch.command else ()


def correction(code: str, word: Word, new: str, effect: str = "") -> Correction:
    return Correction(code, (Rewrite(word.text or "", new, Location(word.path, word.line)),), "", effect)


@check("CFG901")
def first_is_bad(launch: Launch) -> Iterator[Finding]:
    """The first word is bad."""
    for word in words(launch):
        if word.text == "a.one=bad":
            found = correction("CFG901", word, "a.one=good")
            yield Finding("one is bad", Evidence("bad"), fix="script-word", correction=found)


@check("CFG904")
def first_has_two_corrections(launch: Launch) -> Iterator[Finding]:
    """The first word is to be another one, and the second rule refuses the nearest."""
    for word in words(launch):
        if word.text == "a.one=wrong":
            second = replace(correction("CFG904", word, "a.one=fine", "other"), fix="script-word-changed")
            first = replace(correction("CFG904", word, "a.two=hopeless"), others=(second,))
            yield Finding("one is wrong", Evidence("wrong"), fix="script-word", correction=first)


@check("CFG905")
def second_is_odd(launch: Launch) -> Iterator[Finding]:
    """The second word is odd, whatever the first is."""
    for word in words(launch):
        if word.text == "a.two=odd":
            found = correction("CFG905", word, "a.two=even", "this changes the training")
            yield Finding("two is odd", Evidence("odd"), fix="script-word-changed", correction=found)


@check("CFG902", requires={"CFG901"})
def second_is_bad(launch: Launch) -> Iterator[Finding]:
    """The second word is bad; nobody looks at it while the first is."""
    for word in words(launch):
        if word.text == "a.two=bad":
            found = correction("CFG902", word, "a.two=good", "this changes the training")
            yield Finding("two is bad", Evidence("bad"), fix="script-word-changed", correction=found)
        if word.text == "a.two=hopeless":
            yield Finding(
                "two is hopeless", Evidence("hopeless"), Location(word.path, word.line), "Write another"
            )


@check("CFG903", requires={"CFG901"})
def both_are_good(launch: Launch) -> Iterator[Finding]:
    """A rule that finds fault with a repair."""
    if any(word.text == "a.two=good" for word in words(launch)):
        yield Finding("two is too good", Evidence("good"), severity="warning")


@fix("another-word", repairs="CFG902", safety="unsafe", last_resort=True)
def another_word(finding: Finding, launch: Launch) -> list[Change] | Refusal:
    """Write another word."""
    if finding.location is None:
        return Refusal("there is no line to edit")
    path = Path(finding.location.path)
    before = path.read_bytes()
    return [ReplaceFile(path, before, before.replace(b"hopeless", b"fine"))]


def session_of(folder: Path, one: str, two: str, *more: Fix) -> Session:
    """A session for a script with these words, and these additional fixes."""
    path = folder / "run.sh"
    path.write_text(SCRIPT.format(one=one, two=two))
    registry = Registry(
        (first_is_bad, first_has_two_corrections, second_is_odd, second_is_bad, both_are_good),
        (script_word, script_word_changed, *more),
        (launch, source_files),
        (),
        PluginProblems(()),
    )
    target = Target(folder / "bin" / "python", "--python", files=(path,))
    return Session(Machine(environ={}, cwd=folder), target, Config(), registry, Selection())


def _unread(file: Path) -> tuple[int, ...]:
    """All that only a change of the file changes: a plan reads it, which moves its time of access."""
    found = file.stat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def shown(folder: Path, one: str, two: str) -> Report:
    """The plan for a script, after which it is as it was."""
    run = session_of(folder, one, two)
    before = _unread(folder / "run.sh")
    look = run.look()
    report = repair.show(run, look, run.check(look))
    assert _unread(folder / "run.sh") == before
    return report


@check("CFG906")
def third_is_missing(launch: Launch) -> Iterator[Finding]:
    """A word is missing at the end."""
    if launch.command and not any(word.text == "a.three=3" for word in words(launch)):
        added = Correction("CFG906", (Rewrite("", "a.three=3"),), "")
        yield Finding("three is missing", Evidence("none"), fix="script-word", correction=added)


@check("CFG907", requires={"CFG901"})
def fourth_is_missing(launch: Launch) -> Iterator[Finding]:
    """Another word is missing at the end; it is only looked for if the first is good."""
    if launch.command and not any(word.text == "a.four=4" for word in words(launch)):
        added = Correction("CFG907", (Rewrite("", "a.four=4"),), "")
        yield Finding("four is missing", Evidence("none"), fix="script-word", correction=added)


def test_repair_is_planned_once_though_another_one_edits_the_line_above_it(tmp_path: Path) -> None:
    session = session_of(tmp_path, "bad", "x")
    more = (*session.registry.checks, third_is_missing, fourth_is_missing)
    session = replace(session, registry=replace(session.registry, checks=more))
    look = session.look()
    report = repair.show(session, look, session.check(look))
    assert sorted(repair.code for repair in report.repairs or ()) == ["CFG901", "CFG906", "CFG907"]


def test_equal_edits_of_two_lines_are_two_repairs(tmp_path: Path) -> None:
    report = shown(tmp_path, "bad", "bad \\\n  a.two=bad \\\n  a.three=3")
    assert [repaired.code for repaired in report.repairs or ()] == ["CFG901", "CFG902", "CFG902"]


def test_finding_uncovered_by_a_repair_is_in_the_plan(tmp_path: Path) -> None:
    report = shown(tmp_path, "bad", "bad")
    assert [(repair.code, repair.safety, repair.outcome) for repair in report.repairs or ()] == [
        ("CFG901", "safe", "planned"),
        ("CFG902", "unsafe", "planned"),
    ]
    assert report.forecasts == (
        Forecast(unsafe=False, verdict="failures", left=("CFG902",)),
        Forecast(unsafe=True, verdict="warnings"),
    )
    lines = [line.plain for line in render(report)]
    assert lines[-2:] == [
        "After fix --apply: WILL FAIL: CFG902",
        "After fix --apply --unsafe: NO FAULT FOUND",
    ]


def test_single_verdict_is_shown_if_unsafe_repairs_add_nothing(tmp_path: Path) -> None:
    assert shown(tmp_path, "bad", "good").forecasts == (Forecast(unsafe=False, verdict="warnings"),)


def test_finding_without_a_repair_shows_the_line_to_edit(tmp_path: Path) -> None:
    report = shown(tmp_path, "bad", "hopeless")
    assert report.forecasts == (Forecast(unsafe=False, verdict="failures", left=("CFG902",)),)
    lines = "\n".join(line.plain for line in render(shown(tmp_path, "good", "hopeless")))
    assert f"CFG902 {tmp_path}/run.sh:3: Write another" in lines


def test_last_resort_is_applied_only_without_another_fix(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for two, fixes in (("hopeless", ["another-word"]), ("bad", ["script-word-changed"])):
        run = session_of(tmp_path, "good", two, another_word)
        look = run.look()
        report = run.check(look)
        planned = repair.show(run, look, report)
        assert [(repair.fix, repair.outcome) for repair in planned.repairs or ()] == [(fixes[0], "planned")]
        assert planned.forecasts[-1].left == ()
        done = repair.carry_out(run, look, report, unsafe=True)
        assert [(repair.fix, repair.outcome) for repair in done.repairs or ()] == [(fixes[0], "repaired")]
        assert done.verdict != "failures"


def test_correction_rejected_by_another_rule_is_replaced_by_the_next(tmp_path: Path) -> None:
    (planned,) = shown(tmp_path, "wrong", "good").repairs or ()
    assert (planned.fix, planned.safety) == ("script-word-changed", "unsafe")
    assert "+  a.one=fine" in planned.diff
    assert "hopeless" not in planned.diff


def test_planned_correction_is_applied(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    run = session_of(tmp_path, "wrong", "good")
    look = run.look()
    report = repair.carry_out(run, look, run.check(look), unsafe=True)
    assert [(repair.fix, repair.outcome) for repair in report.repairs or ()] == [
        ("script-word-changed", "repaired")
    ]
    assert "  a.one=fine" in (tmp_path / "run.sh").read_text()
    assert report.verdict == "warnings"


def test_repair_whose_lines_moved_is_listed_once(tmp_path: Path) -> None:
    """Each repair adds a comment above the command, so the plan after it has the same edit in another file."""
    report = shown(tmp_path, "bad", "odd")
    assert [repair.code for repair in report.repairs or ()] == ["CFG901", "CFG905"]


@check("CFG908")
def first_is_off(launch: Launch) -> Iterator[Finding]:
    """The first word is off."""
    for word in words(launch):
        if word.text == "a.one=off":
            found = correction("CFG908", word, "a.one=on")
            yield Finding("one is off", Evidence("off"), fix="script-word", correction=found)


@check("CFG909")
def second_is_old(launch: Launch) -> Iterator[Finding]:
    """The second word is too old for a first that is on."""
    first, *_, second = words(launch)
    if (first.text, second.text) == ("a.one=on", "a.two=old"):
        found = correction("CFG909", second, "a.two=new")
        yield Finding("two is old", Evidence("old"), fix="script-word", correction=found)


@check("CFG910", requires={"CFG909"})
def first_must_not_be_on(launch: Launch) -> Iterator[Finding]:
    """The first word is on, for which something is missing that no edit brings."""
    if words(launch)[0].text == "a.one=on":
        yield Finding("one is on", Evidence("on"))


def test_chain_of_edits_that_ends_at_another_fault_is_undone(tmp_path: Path) -> None:
    run = session_of(tmp_path, "off", "old")
    script = (tmp_path / "run.sh").read_bytes()
    checks = (first_is_off, second_is_old, first_must_not_be_on)
    run = replace(run, registry=replace(run.registry, checks=checks))
    look = run.look()
    before = run.check(look)
    (forecast,) = repair.show(run, look, before).forecasts
    assert (forecast.verdict, forecast.left) == ("failures", ("CFG908",))
    after = repair.carry_out(run, look, before, unsafe=True)
    assert [(done.code, done.outcome) for done in after.repairs or ()] == [
        ("CFG908", "made worse, undone"),
        ("CFG909", "made worse, undone"),
    ]
    assert [result.code for result in after.results if result.status == "fail"] == ["CFG908"]
    assert (tmp_path / "run.sh").read_bytes() == script


def test_edit_is_not_undone_for_what_fails_in_the_old_script_too(tmp_path: Path) -> None:
    run = session_of(tmp_path, "off", "new")
    missing = tmp_path / "missing"
    missing.touch()

    @check("CFG911")
    def file_is_gone(launch: Launch) -> Iterator[Finding]:
        """A file that somebody else removes is gone."""
        if launch.command and not missing.exists():
            yield Finding("it is gone", Evidence("none"), Location(str(missing)))

    @check("CFG912")
    def file_is_there(launch: Launch) -> Iterator[Finding]:
        """While this rule is judged, the file goes."""
        if words(launch)[0].text == "a.one=on":
            missing.unlink(missing_ok=True)
        return iter(())

    run = replace(run, registry=replace(run.registry, checks=(first_is_off, file_is_there, file_is_gone)))
    look = run.look()
    after = repair.carry_out(run, look, run.check(look), unsafe=False)
    assert [(done.code, done.outcome) for done in after.repairs or ()] == [("CFG908", "repaired")]
    assert b"a.one=on" in (tmp_path / "run.sh").read_bytes()


@check("CFG913")
def name_is_unknown(launch: Launch) -> Iterator[Finding]:
    """A setting has a wrong name."""
    for word in words(launch):
        if (word.text or "").startswith("a.oen="):
            found = correction("CFG913", word, (word.text or "").replace("oen", "one"))
            yield Finding("there is no a.oen", Evidence("oen"), fix="script-word", correction=found)


@check("CFG914")
def value_is_refused(launch: Launch) -> Iterator[Finding]:
    """The first word has a value for which no other is known."""
    for word in words(launch):
        if word.text == "a.one=maybe":
            yield Finding("one must be yes or no", Evidence("maybe"), subject=Subject("setting", "a.one"))


def test_corrected_name_that_reveals_a_wrong_value_made_nothing_worse(tmp_path: Path) -> None:
    run = session_of(tmp_path, "maybe", "new")
    script = tmp_path / "run.sh"
    script.write_text(script.read_text().replace("a.one", "a.oen"))
    run = replace(run, registry=replace(run.registry, checks=(name_is_unknown, value_is_refused)))
    look = run.look()
    after = repair.carry_out(run, look, run.check(look), unsafe=False)
    (done,) = after.repairs or ()
    assert (done.code, done.outcome) == ("CFG913", "still failing")
    assert done.reason == (
        "with the correct name its value is refused (CFG914: one must be yes or no), so the change was undone"
    )
    assert "a.oen=maybe" in script.read_text()


@check("CFG915")
def first_is_hopeless(launch: Launch) -> Iterator[Finding]:
    """The first word is wrong, and the one by which it can be replaced too."""
    for word in words(launch):
        if word.text == "a.one=hopeless":
            found = correction("CFG915", word, "a.one=hopeful")
            yield Finding("one is hopeless", Evidence("-"), fix="script-word", correction=found)
        if word.text == "a.one=hopeful":
            yield Finding("one is merely hopeful", Evidence("-"))


@check("CFG916")
def second_does_not_fit(launch: Launch) -> Iterator[Finding]:
    """The second word does not fit the first."""
    texts = [word.text for word in words(launch)]
    if "a.one=hopeful" in texts and "a.two=even" not in texts:
        found = correction("CFG916", words(launch)[1], "a.two=even")
        yield Finding("two does not fit", Evidence("-"), fix="script-word", correction=found)


def test_repair_that_is_undone_with_the_one_below_it_is_reported(tmp_path: Path) -> None:
    run = session_of(tmp_path, "hopeless", "odd")
    script = (tmp_path / "run.sh").read_bytes()
    run = replace(run, registry=replace(run.registry, checks=(first_is_hopeless, second_does_not_fit)))
    look = run.look()
    after = repair.carry_out(run, look, run.check(look), unsafe=False)
    assert {done.code: done.reason for done in after.repairs or ()} == {
        "CFG915": 'after it, CFG915 reports "one is merely hopeful", so the change was undone',
        "CFG916": "it needs the repair of CFG915, which did not help, so the change was undone",
    }
    assert {done.outcome for done in after.repairs or ()} == {"still failing"}
    assert (tmp_path / "run.sh").read_bytes() == script
