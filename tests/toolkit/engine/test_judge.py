"""The scheduler: statuses, masks, ignores, and rules that break."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

import pytest
from support.trying import unless_disturbed

from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.config import Ignore
from verl_doctor.toolkit.engine.judge import DEEP, Selection, beyond, judge, not_selected, unknown_words
from verl_doctor.toolkit.facts import Absent, Broken, Unknown, collector, needs_of
from verl_doctor.toolkit.render.result_words import headline, silenced_errors
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Finding, Subject, check

TODAY = date(2026, 11, 21)


@dataclass(frozen=True)
class Disk:
    free: int


@dataclass(frozen=True)
class Cable:
    length: int


def training(disk: Disk | Unknown) -> tuple[str, ...]:
    return ("training",)


@check("HOST901", paths=training)
def disk_is_full(disk: Disk) -> Iterator[Finding]:
    """The disk is full."""
    if disk.free == 0:
        yield Finding("no byte is left", Evidence("0 bytes"), stops=("training",))


@check("HOST902", requires={"HOST901"}, severity="warning")
def disk_is_nearly_full(disk: Disk) -> Iterator[Finding]:
    """The disk is nearly full."""
    if disk.free < 10:
        yield Finding("few bytes are left", Evidence(f"{disk.free} bytes"))


@check("HOST903")
def broken_rule(disk: Disk) -> Iterator[Finding]:
    """A rule that breaks."""
    raise KeyError(disk)
    yield


@check("NET901", cost="live")
def cable_is_short(cable: Cable) -> Iterator[Finding]:
    """The cable is short."""
    yield Finding("too short", Evidence(str(cable.length)))


def without_cable(disk: Disk) -> str | None:
    return "this disk needs no cable" if disk.free else None


@check("NET902", applies=without_cable)
def unused(disk: Disk) -> Iterator[Finding]:
    """A rule that is not always relevant."""
    yield Finding("relevant", Evidence("yes"))


def results(*checks, given=None, selection=Selection(), collectors=()):  # noqa: B008
    judged = judge(checks, Collection(collectors, given or {}), selection, today=TODAY)
    return {result.code: result for result in judged}


def test_rule_without_findings_passes() -> None:
    assert results(disk_is_full, given={Disk: Disk(5)})["HOST901"].status == "pass"


def test_finding_takes_the_severity_of_its_rule() -> None:
    result = results(disk_is_full, disk_is_nearly_full, given={Disk: Disk(5)})["HOST902"]
    assert result.status == "warn"
    assert result.findings[0].severity == "warning"


def test_rule_that_depends_on_a_failed_one_is_skipped() -> None:
    found = results(disk_is_full, disk_is_nearly_full, given={Disk: Disk(0)})
    assert found["HOST901"].status == "fail"
    assert found["HOST902"].status == "skipped"
    assert found["HOST902"].reason == "follows from HOST901"


@pytest.mark.parametrize(
    ("selection", "status"),
    [
        (Selection(select=("HOST902",)), "warn"),
        (Selection(ignore=("HOST901",)), "warn"),
        (Selection(select=("HOST",)), "skipped"),
        (Selection(select=("HOST901", "HOST902")), "skipped"),
    ],
)
def test_deselected_rule_masks_no_other(selection: Selection, status: str) -> None:
    found = results(disk_is_full, disk_is_nearly_full, given={Disk: Disk(0)}, selection=selection)
    assert found["HOST902"].status == status


def test_broken_rule_is_one_error_and_the_run_continues() -> None:
    found = results(broken_rule, disk_is_full, given={Disk: Disk(5)})
    assert found["HOST903"].status == "error"
    assert "KeyError" in found["HOST903"].reason
    assert "Traceback" in found["HOST903"].trace
    assert found["HOST901"].status == "pass"


@pytest.mark.parametrize(
    ("missing", "status"),
    [
        (Unknown("nobody looked"), "skipped"),
        (Absent("no disk"), "not_applicable"),
        (Broken("it burnt"), "error"),
    ],
)
def test_missing_fact_is_never_a_pass(missing: Unknown, status: str) -> None:
    result = results(disk_is_full, given={Disk: missing})["HOST901"]
    assert result.status == status
    assert result.reason == missing.reason


def test_costly_rule_runs_only_with_deep() -> None:
    assert results(cable_is_short, given={Cable: Cable(1)})["NET901"].reason == "needs --deep"
    deep = Selection(costs=frozenset({"instant", "live"}))
    assert results(cable_is_short, given={Cable: Cable(1)}, selection=deep)["NET901"].status == "fail"


def test_fact_needed_only_by_a_costly_rule_is_skipped_in_a_quick_run() -> None:
    @collector()
    def cables(disk: Disk) -> Cable:
        return Cable(disk.free)

    rules = [disk_is_full, cable_is_short]
    assert beyond(rules, [cables], Selection().costs) == {Cable}  # the disk is needed by a quick rule too
    assert beyond(rules, [cables], Selection().costs | DEEP) == set()
    assert beyond([disk_is_full], [cables], Selection().costs) == set()  # an unused fact costs nothing


def test_irrelevant_rule_is_not_applicable_with_its_reason() -> None:
    result = results(unused, given={Disk: Disk(5)})["NET902"]
    assert (result.status, result.reason) == ("not_applicable", "this disk needs no cable")
    assert results(unused, given={Disk: Disk(0)})["NET902"].status == "fail"


def test_ignore_entry_expires_after_its_last_day() -> None:
    for until, status in ((TODAY, "skipped"), (date(2026, 11, 20), "fail")):
        selection = Selection(ignores={"HOST901": Ignore("known, OPS-12", until)})
        result = results(disk_is_full, given={Disk: Disk(0)}, selection=selection)["HOST901"]
        assert result.status == status
        assert "OPS-12" in result.reason
        assert result.silenced_errors == (status == "skipped")


def test_silenced_rule_that_finds_nothing_is_reported() -> None:
    for word, disk, in_vain in (("HOST901", 5, True), ("HOST901", 0, False), ("HOST", 5, False)):
        selection = Selection(ignores={word: Ignore("known, OPS-12", TODAY)})
        result = results(disk_is_full, given={Disk: Disk(disk)}, selection=selection)["HOST901"]
        sentence = f"ignored until {TODAY}: known, OPS-12"
        assert result.reason == (f"{sentence}; it finds nothing here" if in_vain else sentence)


def test_errors_that_the_configuration_hides_are_counted_in_the_verdict() -> None:
    for disk, only, hidden in ((Disk(0), (), 1), (Disk(5), (), 0), (Disk(0), ("val",), 1)):
        rule = files_are_missing if only else disk_is_full
        selection = Selection(ignores={rule.code: Ignore("known", TODAY, only)})
        result = results(rule, given={Disk: disk}, selection=selection)[rule.code]
        assert result.silenced_errors == hidden
        report = Report({}, (result, replace(result, code="NET901", status="pass", silenced_errors=0)))
        assert silenced_errors(report) == (f"1 error silenced ({rule.code})" if hidden else "")
        assert report.verdict == "failures" or headline(report)[1].endswith(silenced_errors(report))


def test_ignoring_a_family_can_be_overridden_for_one_rule() -> None:
    ignores = {"HOST": Ignore("all of them", TODAY), "HOST901": Ignore("long known", date(2000, 1, 1))}
    judged = judge([disk_is_full], Collection([], {Disk: Disk(0)}), Selection(ignores=ignores), today=TODAY)
    assert judged[0].status == "fail", "the rule's own entry has run out"
    del ignores["HOST901"]
    judged = judge([disk_is_full], Collection([], {Disk: Disk(0)}), Selection(ignores=ignores), today=TODAY)
    assert (judged[0].status, judged[0].reason) == ("skipped", f"ignored until {TODAY}: all of them")


@check("DATA901")
def files_are_missing(disk: Disk) -> Iterator[Finding]:
    """Files are missing."""
    for name in ("train", "val"):
        yield Finding(f"{name} is missing", Evidence("missing"), subject=Subject("file", name))


@pytest.mark.parametrize(
    ("only", "left", "status"),
    [(("val",), ["train"], "fail"), (("val", "train"), [], "pass"), (("test",), ["train", "val"], "fail")],
)
def test_single_findings_are_silenced_by_their_subject(
    only: tuple[str, ...], left: list[str], status: str
) -> None:
    selection = Selection(ignores={"DATA": Ignore("made later", TODAY, only)})
    result = results(files_are_missing, given={Disk: Disk(5)}, selection=selection)["DATA901"]
    assert [finding.subject.name for finding in result.findings if finding.subject] == left
    assert result.status == status
    silenced = [name for name in only if name not in left and name != "test"]
    assert result.reason == (f"{', '.join(silenced)} ignored until {TODAY}: made later" if silenced else "")


def test_expired_entry_silences_no_finding() -> None:
    selection = Selection(ignores={"DATA901": Ignore("made later", date(2026, 11, 20), ("val",))})
    result = results(files_are_missing, given={Disk: Disk(5)}, selection=selection)["DATA901"]
    assert (len(result.findings), result.reason_kind) == (2, "ignore expired")


def test_circular_requirements_do_not_stop_the_run() -> None:
    one = check("RAY901", requires={"RAY902"})(disk_is_full.judge)
    two = check("RAY902", requires={"RAY901"})(disk_is_full.judge)
    assert {result.status for result in results(one, two, given={Disk: Disk(5)}).values()} == {"pass"}


def test_selecting_a_family_or_a_code_and_ignoring_one() -> None:
    selection = Selection(select=("HOST", "NET902"), ignore=("HOST903",))
    found = results(
        disk_is_full, broken_rule, cable_is_short, unused, given={Disk: Disk(5)}, selection=selection
    )
    assert sorted(found) == ["HOST901", "NET902"]
    assert unknown_words(("HOST", "CUDA"), [disk_is_full]) == ["CUDA"]


def test_each_fact_is_collected_once() -> None:
    calls = []

    @collector()
    def disk() -> Disk:
        calls.append(1)
        return Disk(50)

    results(disk_is_full, disk_is_nearly_full, collectors=[disk])
    assert calls == [1]


def test_hanging_collector_is_an_error_after_its_time_limit() -> None:
    release = threading.Event()

    @collector(timeout=0.05)
    def disk() -> Disk:
        release.wait(20)
        return Disk(50)

    result = results(disk_is_full, collectors=[disk])["HOST901"]
    release.set()
    assert result.status == "error"
    assert "took longer" in result.reason


def test_failing_collector_is_an_error_with_its_traceback() -> None:
    @collector()
    def disk() -> Disk:
        raise OSError("input/output error")

    result = results(disk_is_full, collectors=[disk])["HOST901"]
    assert result.status == "error"
    assert "input/output error" in result.reason
    assert "Traceback" in result.trace


def test_circular_facts_are_broken_instead_of_hanging() -> None:
    @collector()
    def disk(cable: Cable) -> Disk:
        return Disk(cable.length)

    @collector()
    def cable(disk: Disk) -> Cable:
        return Cable(disk.free)

    assert "need each other" in results(disk_is_full, collectors=[disk, cable])["HOST901"].reason


def test_facts_are_collected_in_parallel() -> None:
    meeting = threading.Barrier(2, timeout=60)

    @collector()
    def disk() -> Disk:
        meeting.wait()
        return Disk(50)

    @collector()
    def cable() -> Cable:
        meeting.wait()
        return Cable(1)

    deep = Selection(costs=frozenset({"instant", "live"}))
    assert (
        results(disk_is_full, cable_is_short, collectors=[disk, cable], selection=deep)["HOST901"].status
        == "pass"
    )


def test_misspelled_fact_is_detected_at_declaration() -> None:
    with pytest.raises(TypeError, match="must name one fact type"):
        needs_of(lambda disk: disk)


def test_path_state_predicts_whether_a_job_would_start() -> None:
    def state(disk: object) -> str:
        judged = judge([disk_is_full], Collection([], {Disk: disk}), Selection(), today=TODAY)
        return Report({}, judged).paths[0].state

    assert state(Disk(0)) == "will_fail"
    assert state(Disk(5)) == "no_fault_found"
    assert state(Unknown("not seen")) == "not_checked"


def test_exit_codes() -> None:
    def code(*checks, disk: object, strict: bool = False) -> int:
        judged = judge(checks, Collection([], {Disk: disk}), Selection(), today=TODAY)
        return Report({}, judged).exit_code(strict=strict)

    assert code(disk_is_full, disk=Disk(50)) == 0
    assert code(disk_is_nearly_full, disk=Disk(5)) == 0
    assert code(disk_is_nearly_full, disk=Disk(5), strict=True) == 1
    assert code(disk_is_full, broken_rule, disk=Disk(0)) == 1
    assert code(broken_rule, disk=Disk(50)) == 3


@unless_disturbed
def test_time_limit_excludes_waiting_for_other_facts() -> None:
    """A collector's limit covers its own work, not the facts that it waits for."""

    @collector(timeout=5)
    def cable() -> Cable:
        time.sleep(0.2)
        return Cable(3)

    @collector(timeout=0.1)
    def disk(cable: Cable) -> Disk:
        return Disk(cable.length)

    assert results(disk_is_full, collectors=[cable, disk])["HOST901"].status == "pass"


def test_masking_is_transitive() -> None:
    third = check("HOST904", requires={"HOST902"})(disk_is_full.judge)
    found = results(disk_is_full, disk_is_nearly_full, third, given={Disk: Disk(0)})
    assert (found["HOST904"].status, found["HOST904"].reason) == ("skipped", "follows from HOST901")


def test_requirement_that_could_not_be_judged_masks_too() -> None:
    third = check("NET903", requires={"HOST901"})(cable_is_short.judge)
    found = results(disk_is_full, third, given={Disk: Unknown("nobody looked"), Cable: Cable(1)})
    assert found["NET903"].status == "skipped"


def test_live_rule_counts_if_its_requirement_could_not_be_judged() -> None:
    tried = check("NET904", requires={"HOST901"}, cost="live")(cable_is_short.judge)
    deep = Selection(costs=frozenset({"instant", "live"}))
    given = {Disk: Unknown("nobody looked"), Cable: Cable(1)}
    assert results(disk_is_full, tried, given=given, selection=deep)["NET904"].status == "fail"
    found = results(disk_is_full, tried, given={**given, Disk: Disk(0)}, selection=deep)
    assert found["NET904"].reason == "follows from HOST901"


def test_ignored_requirement_does_not_mask() -> None:
    selection = Selection(ignores={"HOST901": Ignore("known", TODAY)})
    assert (
        results(disk_is_full, disk_is_nearly_full, given={Disk: Disk(0)}, selection=selection)[
            "HOST902"
        ].status
        == "warn"
    )


@pytest.mark.parametrize(
    "yielded", [Finding("x", Evidence("y"), severity="critical"), Finding(3, Evidence("y")), "text"]
)  # type: ignore[arg-type]
def test_rule_that_yields_other_values_is_broken(yielded: object) -> None:
    @check("HOST905")
    def odd(disk: Disk) -> Iterator[Finding]:
        """Odd."""
        yield yielded  # type: ignore[misc]

    assert results(odd, given={Disk: Disk(5)})["HOST905"].status == "error"


def test_rule_that_exits_ends_only_itself() -> None:
    @check("HOST906")
    def leaving(disk: Disk) -> Iterator[Finding]:
        """Leaving."""
        raise SystemExit(0)
        yield

    found = results(leaving, disk_is_full, given={Disk: Disk(5)})
    assert (found["HOST906"].status, found["HOST901"].status) == ("error", "pass")


def test_verdict_without_judgements_is_not_ok() -> None:
    def verdict(disk: object, **more: object) -> str:
        judged = judge([disk_is_full], Collection([], {Disk: disk}), Selection(**more), today=TODAY)  # type: ignore[arg-type]
        return Report({}, judged).verdict

    assert verdict(Unknown("python cannot be started")) == "could_not_check"
    assert verdict(Absent("there is no disk")) == "could_not_check"
    assert verdict(Disk(0), ignores={"HOST901": Ignore("known", TODAY)}) == "could_not_check"


def test_deselected_rule_about_a_path_is_named() -> None:
    other = check("HOST907", paths=training)(disk_is_full.judge)
    collection = Collection([], {Disk: Disk(5)})
    judged = judge([disk_is_full, other], collection, Selection(select=("HOST901",)), today=TODAY)
    report = Report({}, judged, not_selected=not_selected([disk_is_full, other], collection, judged))
    assert (report.paths[0].state, report.paths[0].not_judged) == ("no_fault_found", ("HOST907",))


def test_listing_deselected_rules_collects_no_facts() -> None:
    """Reading Ray and transformers takes seconds: `--select VLLM` must not pay for them."""
    looked: list[str] = []

    @collector()
    def cable(disk: Disk) -> Cable:
        looked.append("cable")
        return Cable(1)

    def of_the_cable(cable: Cable) -> tuple[str, ...]:
        return ("training",)

    other = check("HOST907", paths=of_the_cable)(disk_is_full.judge)
    for disk, said in ((Disk(5), {"training": ["HOST907"]}), (Absent("no disk"), {})):
        collection = Collection([cable], {Disk: disk})
        judged = judge([disk_is_full], collection, Selection(), today=TODAY)
        assert not_selected([disk_is_full, other], collection, judged) == said
    assert looked == []


def test_finding_that_stops_every_job_stops_each_path() -> None:
    @check("HOST908")
    def fatal(disk: Disk) -> Iterator[Finding]:
        """Fatal."""
        yield Finding("gone", Evidence("gone"), stops=(EVERY_JOB,))

    judged = judge([disk_is_full, fatal], Collection([], {Disk: Disk(5)}), Selection(), today=TODAY)
    assert [(path.state, path.codes) for path in Report({}, judged).paths] == [("will_fail", ("HOST908",))]


def test_selector_matches_whole_families_only() -> None:
    assert unknown_words(("HOST", "HOST9", "HOST901"), [disk_is_full]) == []
    assert unknown_words(("H", "HOS", "HOST8", ""), [disk_is_full]) == ["H", "HOS", "HOST8", ""]
