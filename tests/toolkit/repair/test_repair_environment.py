"""Repairs of the job's environment: written into files, judged as if they were sourced, taken out when they do not help."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from crash.harness import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from support.trying import cases

from verl_doctor.toolkit.change import Change, Fix, NewLink, Refusal, SetVariable, fix
from verl_doctor.toolkit.changes import apply
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.registry import Registry
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render.document import document
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.repair.envfiles import RAY_FILE, SHELL_FILE
from verl_doctor.toolkit.repair.job_environment import begin_from
from verl_doctor.toolkit.result import Repair, Report
from verl_doctor.toolkit.rule import Check, Evidence, Finding, check
from verl_doctor.toolkit.target import Target, UsageError, journal_homes


@dataclass(frozen=True)
class Shell:
    """All variables, and those of a local Ray."""

    values: Mapping[str, str]
    ray: Mapping[str, str]


@dataclass(frozen=True)
class Proof:
    """What took long to find out."""

    colour: str


PROOFS: list[str] = []
RAY: dict[str, str] = {}
LOOKS: list[Mapping[str, str]] = []


@collector()
def shell(machine: Machine) -> Shell | Unknown:
    """Take them as they are."""
    LOOKS.append(machine.environ)
    return Shell(machine.environ, machine.as_started(RAY))


@collector()
def no_interpreter() -> Interpreter | Unknown:
    """None is asked."""
    return Unknown("not asked")


@collector()
def no_verl() -> VerlTrees | Unknown:
    """None is there."""
    return Unknown("none")


@collector()
def no_vllm() -> VllmTree | Unknown:
    """None is there."""
    return Unknown("none")


@check("ENV901")
def colour(shell: Shell) -> Iterator[Finding]:
    """The colour is bad."""
    if shell.values.get("COLOUR", "red") == "red":
        yield Finding("red", Evidence("red"), fix="paint")


@check("ENV902")
def size(shell: Shell) -> Iterator[Finding]:
    """There is a size."""
    if "SIZE" in shell.values:
        yield Finding("size", Evidence("size"), fix="shrink")


@check("ENV903")
def dark(shell: Shell) -> Iterator[Finding]:
    """The colour is black."""
    if shell.values.get("COLOUR") == "black":
        yield Finding("black", Evidence("black"))


@collector()
def proof(machine: Machine) -> Proof | Unknown:
    """Try it for a minute."""
    PROOFS.append(machine.environ.get("COLOUR", "red"))
    return Proof(PROOFS[-1])


@check("ENV905", cost="gpu")
def proven_red(proof: Proof) -> Iterator[Finding]:
    """It was seen to be red."""
    if proof.colour == "red":
        yield Finding("red", Evidence("red"), fix="paint-proven")


@check("ENV906")
def faded(shell: Shell) -> Iterator[Finding]:
    """The colour faded: paint helps once, or makes it a warning, or nothing."""
    match shell.values.get("COLOUR", "red"):
        case "red":
            yield Finding("red", Evidence("red"), fix="paint")
        case "pink":
            yield Finding("pink", Evidence("pink"))
        case "rose":
            yield Finding("rose", Evidence("rose"), severity="warning")


@check("ENV904")
def other_ray(shell: Shell) -> Iterator[Finding]:
    """Ray has another colour."""
    if shell.ray.get("COLOUR") != shell.values.get("COLOUR"):
        yield Finding("Ray", Evidence("Ray"), fix="paint-ray")


def fixing(identifier: str, code: str, *changes: Change, safety: str = "safe") -> Fix:
    @fix(identifier, repairs=code, safety=safety)
    def mend(_: Finding) -> list[Change] | Refusal:
        """Mend it."""
        return list(changes)

    return mend


BLUE = SetVariable("COLOUR", "blue", "red hurts", "somebody paints it")
PAINT = fixing("paint", "ENV901", BLUE)
SHRINK = fixing("shrink", "ENV902", SetVariable("SIZE", None, "it does not fit"))


@dataclass(frozen=True)
class Job:
    """A user's folder, and the registry of its values."""

    folder: Path
    fixes: tuple[Fix, ...] = (PAINT, SHRINK)
    checks: tuple[Check, ...] = (colour, size, dark)
    select: tuple[str, ...] = ()
    unsafe: bool = False
    libraries: tuple[tuple[str, Path], ...] = ()
    costs: frozenset[str] = frozenset({"instant"})

    @property
    def env(self) -> Path:
        return self.folder / "env"

    @property
    def shell_file(self) -> str:
        return (self.env / SHELL_FILE).read_text()

    @property
    def ray_file(self) -> Mapping[str, str]:
        return yaml.safe_load((self.env / RAY_FILE).read_text())["env_vars"]

    def session(self, environ: Mapping[str, str]) -> Session:
        collectors = (shell, proof, no_interpreter, no_verl, no_vllm)
        registry = Registry(self.checks, self.fixes, collectors, (), PluginProblems(()))
        target = Target(self.folder / "venv/bin/python", "--python", libraries=self.libraries)
        machine = Machine(environ=environ, cwd=self.folder)
        return Session(machine, target, Config(), registry, Selection(select=self.select, costs=self.costs))

    def run(self, environ: Mapping[str, str], *, applied: bool = True, into: str | None = "env") -> Report:
        session = self.session(environ)
        job = begin_from(session.machine, Path(into) if into else None)
        collection = (session if job is None else session.started_anew(job.as_found)).look()
        report = session.check(collection)
        if applied:
            return repair.carry_out(session, collection, report, unsafe=self.unsafe, job=job)
        return repair.show(session, collection, report, job)

    def sourced(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment after bash has sourced the file."""
        script = '. "$1"; env -0'
        done = subprocess.run(
            ["bash", "-euc", script, "bash", self.env / SHELL_FILE],
            env={"PATH": os.environ["PATH"], **environ},
            capture_output=True,
            check=True,
        )
        pairs = (os.fsdecode(pair).partition("=") for pair in done.stdout.split(b"\0") if pair)
        return {name: value for name, _, value in pairs if name not in {"PATH", "PWD", "SHLVL", "_"}}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    return Job(tmp_path)


def outcomes(report: Report) -> list[tuple[str, str]]:
    return [(done.fix, done.outcome) for done in report.repairs or ()]


def only(report: Report) -> Repair:
    (done,) = report.repairs or ()
    return done


def test_variable_is_written_to_both_files_and_silences_the_rule(job: Job) -> None:
    report = job.run({"COLOUR": "red"})
    assert outcomes(report) == [("paint", "repaired")]
    assert report.verdict == "ok"
    assert repair.exit_code(report) == 0
    assert "# ENV901 paint: red hurts; needed until somebody paints it\n" in job.shell_file
    assert job.sourced({"COLOUR": "red"})["COLOUR"] == "blue"
    assert job.ray_file == {"COLOUR": "blue"}


def test_nothing_is_written_without_a_folder_and_the_next_step_is_shown(job: Job) -> None:
    report = job.run({"COLOUR": "red"}, into=None)
    assert only(report).outcome == "not attempted"
    assert "--output-env DIR" in only(report).reason
    assert repair.exit_code(report) == 1, "the fault is still there"
    assert not job.env.exists()


def test_plan_shows_the_files_and_writes_none(job: Job) -> None:
    report = job.run({"COLOUR": "red", "SIZE": "1"}, applied=False)
    assert outcomes(report) == [("paint", "planned"), ("shrink", "planned")]
    assert report.environment is not None
    for line in (f"+++ b{job.env / SHELL_FILE}", "+export COLOUR='blue'", "+unset SIZE", '+  COLOUR: "blue"'):
        assert line in report.environment.diff.splitlines()
    assert not job.env.exists()


@pytest.mark.slow
def test_second_run_changes_nothing_whether_sourced_or_not(job: Job) -> None:
    found = {"COLOUR": "red", "SIZE": "1"}
    job.run(found)
    for environ in (found, job.sourced(found), found):
        before = tree(job.folder)
        report = job.run(environ)
        assert outcomes(report) == [("paint", "repaired"), ("shrink", "repaired")]
        assert [done.transaction for done in report.repairs or ()] == [None, None]
        assert tree(job.folder) == before


def test_variable_no_longer_required_is_removed(job: Job) -> None:
    found = {"COLOUR": "red", "SIZE": "1"}
    job.run(found)
    report = job.run({**job.sourced(found), "COLOUR": "yellow"})
    assert outcomes(report) == [("shrink", "repaired"), ("environment-files", "repaired")]
    taken_out = (report.repairs or ())[-1]
    assert taken_out.reason == "COLOUR was set for ENV901 paint: red hurts; needed until somebody paints it"
    assert "COLOUR" not in job.shell_file
    assert "unset SIZE" in job.shell_file
    assert report.verdict == "ok"


def test_removals_at_the_origin_are_distinguished_from_removals_by_the_file(job: Job) -> None:
    job.run({"COLOUR": "blue", "SIZE": "1"})
    assert outcomes(job.run({"COLOUR": "blue"})) == [("environment-files", "repaired")]
    assert "SIZE" not in job.shell_file


def test_values_of_deselected_rules_are_kept(job: Job) -> None:
    found = {"COLOUR": "red", "SIZE": "1"}
    job.run(found)
    before = job.shell_file
    report = replace(job, select=("ENV902",)).run(found)
    assert outcomes(report) == [("shrink", "repaired")]
    assert job.shell_file == before


def test_value_required_in_one_shell_is_kept_for_others(job: Job) -> None:
    found = {"COLOUR": "red", "SIZE": "1"}
    job.run(found)
    replace(job, select=("ENV901",)).run({"COLOUR": "black"})
    assert "COLOUR" not in job.shell_file
    assert outcomes(job.run(job.sourced(found))) == [("paint", "repaired"), ("shrink", "repaired")]


def test_useless_variable_is_removed_again(job: Job) -> None:
    useless = fixing(
        "paint", "ENV901", SetVariable("BRUSH", "1", "it may help"), NewLink(job.folder / "a", job.folder)
    )
    report = replace(job, fixes=(useless, SHRINK)).run({"SIZE": "1"})
    assert outcomes(report) == [("paint", "still failing"), ("shrink", "repaired")]
    assert (report.repairs or ())[
        0
    ].reason == "ENV901 still reports the same findings, so the variables were removed"
    assert "BRUSH" not in job.shell_file
    assert not (job.folder / "a").is_symlink()
    assert job.ray_file == {}
    assert repair.exit_code(report) == 1


def test_rule_that_merely_stops_offering_the_fix_is_not_repaired(job: Job) -> None:
    paint = fixing("paint", "ENV906", SetVariable("COLOUR", "pink", "it is nearly white"))
    report = replace(job, fixes=(paint,), checks=(faded,)).run({})
    assert only(report).outcome == "still failing"
    assert only(report).reason == 'after it, ENV906 reports "pink", so the variables were removed'
    assert not job.env.exists()


def test_error_reduced_to_a_warning_counts_as_repaired(job: Job) -> None:
    paint = fixing("paint", "ENV906", SetVariable("COLOUR", "rose", "it is nearly white"))
    report = replace(job, fixes=(paint,), checks=(faded,)).run({})
    assert only(report).outcome == "repaired"
    assert job.ray_file == {"COLOUR": "rose"}


def test_variable_that_no_longer_helps_is_removed(job: Job) -> None:
    job.run({})
    useless = fixing("paint", "ENV901", SetVariable("COLOUR", "red", "it is the fashion"))
    report = replace(job, fixes=(useless,)).run({})
    assert outcomes(report) == [("paint", "still failing"), ("environment-files", "repaired")]
    assert "COLOUR" not in job.shell_file


def test_variable_that_makes_another_rule_fail_is_removed(job: Job) -> None:
    black = fixing("paint", "ENV901", SetVariable("COLOUR", "black", "it was at hand"))
    report = replace(job, fixes=(black,)).run({})
    assert outcomes(report) == [("paint", "made worse, undone")]
    assert not job.env.exists()


def test_links_and_variables_share_a_transaction(job: Job) -> None:
    both = fixing("paint", "ENV901", BLUE, NewLink(job.folder / "made/link", job.folder))
    before = tree(job.folder)
    report = replace(job, fixes=(both,)).run({})
    name = only(report).transaction
    assert name is not None
    assert (job.folder / "made/link").is_symlink()
    home, _, number = name.rpartition("/")
    assert Path(home) == journal_homes(job.session({}).target)[1]
    (entry,) = apply.history(Path(home))
    assert [change.kind for change in entry.changes] == ["new_link", "new_file", "new_file"]
    apply.undo(Path(home), number)
    assert tree(job.folder) == before


@pytest.mark.parametrize(
    ("code", "tried"), [("ENV905", ["red", "blue", "blue"]), ("ENV901", ["red", "blue"])]
)
def test_gpu_rule_runs_for_its_own_repair_and_at_the_end(job: Job, code: str, tried: list[str]) -> None:
    PROOFS.clear()
    fixes = (fixing("paint-proven" if code == "ENV905" else "paint", code, BLUE), SHRINK)
    checks = (proven_red, size, *([colour] if code == "ENV901" else []))
    report = replace(job, fixes=fixes, checks=checks, costs=frozenset({"instant", "gpu"})).run({"SIZE": "1"})
    assert {outcome for _, outcome in outcomes(report)} == {"repaired"}
    assert tried == PROOFS
    assert report.verdict == "ok"


def test_each_repair_needs_one_observation(job: Job) -> None:
    LOOKS.clear()
    assert len(job.run({"COLOUR": "red", "SIZE": "1"}).repairs or ()) == len(LOOKS) - 1 == 2


def test_undo_restores_the_previous_content_of_the_files(job: Job) -> None:
    job.run({"COLOUR": "red"})
    before = tree(job.env)
    report = job.run({"COLOUR": "red", "SIZE": "1"})
    assert "unset SIZE" in job.shell_file
    home, _, number = ((report.repairs or ())[-1].transaction or "").rpartition("/")
    apply.undo(Path(home), number)
    assert tree(job.env) == before


mornings = st.fixed_dictionaries(
    {},
    optional={
        "COLOUR": st.sampled_from(["red", "blue", "it's\n$HOME"]),
        "SIZE": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    },
)


@pytest.mark.slow
@settings(max_examples=cases(10), deadline=None)
@given(st.lists(st.tuples(mornings, st.booleans(), st.booleans()), min_size=1, max_size=4))
def test_undo_reverts_runs_of_several_days(
    days: list[tuple[dict[str, str], bool, bool]],
) -> None:
    """Days with different environments, in shells with or without the sourced file, with a link added along with a variable."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        (job.folder / "venv/bin").mkdir(parents=True)
        (job.folder / "venv/pyvenv.cfg").write_text("")
        before = tree(job.folder)
        for environ, with_link, after_sourcing in days:
            link = NewLink(job.folder / "made/link", job.folder)
            paint = fixing("paint", "ENV901", BLUE, *([link] if with_link else ()))
            if after_sourcing and job.env.exists():
                environ = job.sourced(environ)  # noqa: PLW2901
            report = replace(job, fixes=(paint, SHRINK)).run(environ)
            assert {outcome for _, outcome in outcomes(report)} <= {"repaired"}
        for home in filter(Path.exists, journal_homes(job.session({}).target)):
            apply.undo(home, everything=True)
        assert tree(job.folder) == before


def test_conflicting_fixes_are_both_refused_with_both_reasons(job: Job) -> None:
    other = fixing("shrink", "ENV902", SetVariable("COLOUR", "green", "small things are green"))
    for applied in (False, True):
        report = replace(job, fixes=(PAINT, other)).run({"SIZE": "1"}, applied=applied)
        assert outcomes(report) == [("paint", "refused"), ("shrink", "refused")]
        for done in report.repairs or ():
            assert "red hurts" in done.reason
            assert "small things are green" in done.reason
    assert not job.env.exists()
    assert repair.exit_code(report) == 1


def test_fix_that_was_not_requested_does_not_conflict(job: Job) -> None:
    other = fixing("shrink", "ENV902", SetVariable("COLOUR", "green", "it is"), safety="unsafe")
    report = replace(job, fixes=(PAINT, other)).run({"SIZE": "1"})
    assert outcomes(report) == [("paint", "repaired"), ("shrink", "not attempted")]


def test_value_of_an_unsafe_fix_is_kept_in_later_runs(job: Job) -> None:
    shrink = fixing("shrink", "ENV902", SetVariable("SIZE", None, "it is"), safety="unsafe")
    unsafe_job = replace(job, fixes=(PAINT, shrink), unsafe=True)
    assert outcomes(unsafe_job.run({"SIZE": "1"})) == [("paint", "repaired"), ("shrink", "repaired")]
    report = replace(unsafe_job, unsafe=False).run({"SIZE": "1"})
    assert outcomes(report) == [("paint", "repaired"), ("shrink", "not attempted")]
    assert "unset SIZE" in job.shell_file


def test_secret_is_refused_and_not_shown(job: Job) -> None:
    secret = "hf_" + "a" * 34
    leaking = fixing("paint", "ENV901", SetVariable("COLOUR", secret, "why not"))
    for applied in (False, True):
        report = replace(job, fixes=(leaking,)).run({}, applied=applied)
        assert only(report).outcome == "refused"
        assert "may hold a secret" in only(report).reason
        assert secret not in json.dumps(document(report))
    assert not job.env.exists()


def test_secret_in_an_earlier_value_is_not_written(job: Job) -> None:
    secret = "hf_" + "a" * 34
    job.run({"COLOUR": "blue", "SIZE": secret})
    assert "unset SIZE" in job.shell_file
    assert secret not in job.shell_file


def test_running_raylet_is_judged_as_it_will_be_restarted(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RAY, "COLOUR", "red")
    ray = fixing("paint-ray", "ENV904", replace(BLUE, why="Ray was started with another"))
    work = replace(job, fixes=(ray,), checks=(other_ray,))
    assert outcomes(work.run({"COLOUR": "blue"})) == [("paint-ray", "repaired")]


def test_node_specific_variable_is_not_written_for_ray(job: Job) -> None:
    here = fixing("paint", "ENV901", replace(BLUE, node_only=True))
    report = replace(job, fixes=(here,)).run({})
    assert only(report).outcome == "repaired"
    assert job.ray_file == {}
    assert "COLOUR is not here: another node may need another value" in (job.env / RAY_FILE).read_text()
    assert report.environment is not None
    assert [variable["ray"] for variable in report.environment.variables] == [None]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (SHELL_FILE, lambda _: "export A=1\n", "was not written by verl-doctor"),
        (RAY_FILE, lambda _: "env_vars: {}\n", "was not written by verl-doctor"),
        (SHELL_FILE, lambda text: text + "export MINE=1\n", "was edited since"),
        (RAY_FILE, lambda text: text.replace("blue", "green"), "was edited since"),
        (SHELL_FILE, lambda text: text.replace("format 1", "format 2"), "by another version"),
    ],
)
def test_file_of_another_program_is_never_replaced(
    job: Job, name: str, damage: Callable[[str], str], message: str
) -> None:
    job.run({})
    text = damage((job.env / name).read_text())
    (job.env / name).write_text(text)
    for applied in (False, True):
        with pytest.raises(UsageError, match=message):
            job.run({}, applied=applied)
    assert (job.env / name).read_text() == text


def test_file_in_place_of_the_folder_is_a_usage_error(job: Job) -> None:
    (job.folder / "file").write_text("")
    with pytest.raises(UsageError, match="file is not a folder"):
        job.run({}, into="file")
    with pytest.raises(UsageError, match="file is not a folder"):
        job.run({}, into="file/below")


def test_no_files_are_written_if_none_are_needed(job: Job) -> None:
    for applied in (False, True):
        report = job.run({"COLOUR": "blue"}, applied=applied)
        assert outcomes(report) == []
        assert report.environment is not None
        assert report.environment.diff == ""
    assert not job.env.exists()


def test_folder_may_be_a_link(job: Job) -> None:
    (job.folder / "elsewhere").mkdir()
    job.env.symlink_to("elsewhere")
    job.run({})
    assert job.env.is_symlink()
    assert job.sourced({})["COLOUR"] == "blue"
    assert outcomes(job.run(job.sourced({}))) == [("paint", "repaired")]


@pytest.mark.parametrize("way", ["moved", "by another name"])
def test_required_values_are_kept_when_the_folder_moves(job: Job, way: str) -> None:
    found = {"COLOUR": "red", "SIZE": "1"}
    job.run(found)
    sourced = job.sourced(found)
    (job.folder / "other").symlink_to("env")
    if way == "moved":
        (job.folder / "other").unlink()
        job.env.rename(job.folder / "other")
    before = tree(job.folder / "other")
    for _ in range(2):
        report = job.run(sourced, into="other")
        assert outcomes(report) == [("paint", "repaired"), ("shrink", "repaired")]
        assert tree(job.folder / "other") == before


def test_only_variables_read_by_installed_packages_are_written(job: Job) -> None:
    vllm = job.folder / "site/vllm"
    vllm.mkdir(parents=True)
    (vllm / "__init__.py").write_text("import os\nA = os.environ.get('VLLM_READ')\n")
    both = fixing(
        "paint", "ENV901", BLUE, SetVariable("VLLM_UNREAD", "1", ""), SetVariable("VLLM_READ", "1", "")
    )
    job = replace(job, libraries=(("vllm", vllm),))
    report = replace(job, fixes=(both,)).run({})
    assert only(report).outcome == "repaired"
    assert only(report).reason == "VLLM_UNREAD is left out: the installed vllm does not read it"
    assert job.ray_file == {"COLOUR": "blue", "VLLM_READ": "1"}
    alone = fixing("paint", "ENV901", SetVariable("VLLM_UNREAD", "1", ""))
    assert only(replace(job, fixes=(alone,)).run({})).outcome == "refused"


def test_report_describes_the_files(job: Job) -> None:
    report = job.run({"SIZE": "1"})
    message = document(report)["environment"]
    assert (message["shell"], message["runtime_env"]) == (str(job.env / SHELL_FILE), str(job.env / RAY_FILE))
    assert message["variables"] == [
        {
            "name": "COLOUR",
            "value": "blue",
            "prepend": False,
            "node_only": False,
            "ray": "blue",
            "reasons": ["ENV901 paint: red hurts; needed until somebody paints it"],
        },
        {
            "name": "SIZE",
            "value": None,
            "prepend": False,
            "node_only": False,
            "ray": None,
            "reasons": ["ENV902 shrink: it does not fit; needed until verl-doctor fix no longer requires it"],
        },
    ]
