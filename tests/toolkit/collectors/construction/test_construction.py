"""Request of the collector to the child, and interpretation of its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.construction.construction import Built, Construction
from verl_doctor.toolkit.collectors.construction.construction_collector import construction
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Setting
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output

PYTHON = Interpreter(sys.executable, "3.11", "CPython", "", "", "", (), (), "Linux", "x86_64", "", "", "")

_WITHOUT_LAUNCHER = Absent("Ray starts the processes")


class Child:
    """A fake child: prints these events, and records its requests."""

    def __init__(self, *passes: Sequence[Mapping[str, Any]], code: int = 0) -> None:
        self.passes, self.code = list(passes), code
        self.orders: list[dict[str, Any]] = []
        self.environs: list[Mapping[str, str]] = []

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], _timeout: float) -> Output:
        token, order = argv[-2:]
        self.orders.append(json.loads(order))
        self.environs.append(environ)
        events = self.passes[len(self.orders) - 1]
        text = "".join(f"noise\n{token}{json.dumps(event)}\n" for event in events)
        whole = bool(events) and events[-1]["event"] == "whole"
        return Output(0 if whole else self.code, text, "Fatal Python error", 1.0)


def begin(stage: str) -> dict[str, Any]:
    return {"event": "begin", "stage": stage, "users": False}


def end(stage: str, state: str = "ok", **more: Any) -> dict[str, Any]:
    return {"event": "end", "stage": stage, "state": state, "seconds": 0.5, **more}


WHOLE: dict[str, Any] = {"event": "whole", "own": []}


def collected(
    child: Child,
    *words: str,
    folder: Path = Path("/job"),
    there: Configuration | None = None,
    written: Mapping[str, str | None] | None = None,
    processes: JobProcesses | Absent = _WITHOUT_LAUNCHER,
    starts_in: str = "",
) -> Construction | Unknown:
    composed = there or configured(*words)[0]
    script = folder / "run.sh"
    launch = Launch(
        ((str(script), "shell script"),),
        (Setting("VLLM_USE_V1", "1", SCRIPT, 1),),
        Command(
            "verl.trainer.main_ppo", (), SCRIPT, 9, folder=starts_in, written=tuple((written or {}).items())
        ),
    )
    machine = Machine(environ={"HOME": "/home/me", "PATH": "/bin"}, cwd=folder, runner=child)
    found: Construction | Unknown = construction.collect(
        composed,
        launch,
        PYTHON,
        VerlTrees(Tree("/env/verl", "verl", "0.9.1", "--verl"), "named"),
        Variables({"HOME": "/home/me", "PATH": "/bin"}),
        JobVariables({"VLLM_USE_V1": "1", "HOME": "/home/me", "PATH": "/bin"}, {"VLLM_USE_V1": (SCRIPT, 1)}),
        processes,
        machine,
    )
    return found


def test_numbers_of_a_launcher_count_instead_of_the_settings() -> None:
    child = Child(*[[begin("composition"), end("composition"), WHOLE]] * 2)
    collected(child)
    collected(child, processes=JobProcesses(True, "torchrun", {"nnodes": "2", "nproc_per_node": "4"}))
    assert [order["launched"] for order in child.orders] == [None, [8, 4]]


def test_child_receives_overrides_folder_and_variables_of_the_job() -> None:
    child = Child([begin("composition"), end("composition"), WHOLE])
    assert isinstance(collected(child, "trainer.nnodes=2"), Construction)
    (order,) = child.orders
    assert order["overrides"] == ["trainer.nnodes=2"]
    assert (order["folder"], order["module"], order["tree"]) == ("/job", "verl.trainer.main_ppo", "/env")
    (environ,) = child.environs
    assert (environ["HOME"], environ["VLLM_USE_V1"]) == ("/home/me", "1")
    assert environ["HF_HOME"] == "/home/me/.cache/huggingface"
    assert not environ["TMPDIR"].startswith("/home")


def test_job_is_built_in_the_folder_that_the_script_enters(tmp_path: Path) -> None:
    child = Child([begin("composition"), end("composition"), WHOLE])
    found = collected(child, starts_in=str(tmp_path / "out"))
    assert isinstance(found, Unknown)
    assert "does not exist yet" in found.reason
    (tmp_path / "out").mkdir()
    assert isinstance(collected(child, starts_in=str(tmp_path / "out")), Construction)
    assert [order["folder"] for order in child.orders] == [str(tmp_path / "out")]


def test_only_names_of_runs_may_be_undetermined() -> None:
    child = Child([WHOLE], [begin("composition"), end("composition"), WHOLE])
    undetermined = configured("trainer.total_epochs=${oc.env:N}")[0]
    hidden = replace(undetermined.overrides[0], value="${untold}")
    found = collected(child, there=replace(undetermined, overrides=(hidden,)))
    assert isinstance(found, Unknown)
    assert not child.orders
    name = replace(hidden, key="trainer.experiment_name", text="trainer.experiment_name=x-$(date)")
    child = Child([begin("composition"), end("composition"), WHOLE])
    assert isinstance(collected(child, there=replace(undetermined, overrides=(name,))), Construction)
    assert child.orders[0]["overrides"] == ["trainer.experiment_name=undetermined"]


def test_configuration_that_the_script_still_has_to_write_is_not_built(tmp_path: Path) -> None:
    file, there = tmp_path / "mine.yaml", replace(configured()[0], folder=str(tmp_path))
    child = Child([begin("composition"), end("composition"), WHOLE])
    for text in ("a: 1\n", None):
        found = collected(child, there=there, written={str(file): text})
        assert isinstance(found, Unknown)
        assert "writes" in found.reason
    assert not child.orders
    file.write_text("a: 1\n")
    assert isinstance(collected(child, there=there, written={str(file): "a: 1\n"}), Construction)


def test_crash_is_reported_and_the_next_pass_omits_its_stage() -> None:
    child = Child(
        [begin("a"), end("a"), begin("b")],
        [begin("a"), end("a"), end("c", "not reached", text="b"), begin("d"), end("d"), WHOLE],
        code=-11,
    )
    found = collected(child)
    assert isinstance(found, Construction)
    assert {stage.stage: stage.ended for stage in found.stages} == {
        "a": "ok",
        "b": "crashes",
        "c": "not reached",
        "d": "ok",
    }
    assert found.get("b") == Built("b", "crashes", kind="signal 11", text="Fatal Python error")
    assert [order["skip"] for order in child.orders] == [[], ["b"]]


def test_child_without_output_leaves_the_job_unbuilt() -> None:
    found = collected(Child([], [], []))
    assert isinstance(found, Unknown)
    assert "could not be built" in found.reason


def test_error_is_matched_to_a_word_of_the_script() -> None:
    events = [
        begin("engine"),
        end("engine", "breaks", kind="ValueError", text="max_num_seqs must be at least 1", key="", frames=[]),
        WHOLE,
    ]
    found = collected(Child(events), "actor_rollout_ref.rollout.max_num_seqs=0")
    assert isinstance(found, Construction)
    (fault,) = found.bad("engine")
    assert (fault.word, fault.path, fault.line) == ("actor_rollout_ref.rollout.max_num_seqs=0", SCRIPT, 2)


def test_same_error_in_two_stages_is_reported_once() -> None:
    same = {"kind": "ValueError", "text": "no", "key": "", "frames": []}
    found = collected(
        Child([begin("a"), end("a", "breaks", **same), begin("b"), end("b", "breaks", **same), WHOLE])
    )
    assert isinstance(found, Construction)
    assert [stage.stage for stage in found.bad("a", "b")] == ["a"]
    assert list(found.bad("b")) == []


@pytest.mark.parametrize(("text", "wanted"), [("cd work\n", "not judged"), ("echo cd\n", "breaks")])
def test_missing_file_is_not_an_error_if_the_script_changes_the_folder(
    text: str, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(text)
    gone = end("reward", "breaks", kind="FileNotFoundError", text="reward.py", key="", frames=[])
    found = collected(Child([begin("reward"), gone, WHOLE]), folder=tmp_path)
    assert isinstance(found, Construction)
    assert found.stages[0].ended == wanted
