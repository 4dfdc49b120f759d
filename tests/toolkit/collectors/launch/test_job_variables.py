"""What a Ray job gets: the variables of its `runtime_env`, and the folder that is uploaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launch.scripts import given, read, words_of

from verl_doctor.toolkit.collectors.launch.launch import Setting


def test_ray_job_and_its_runtime_env(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("env_vars:\n  A: '1'\n  B: 2\n")
    found = read(
        tmp_path,
        'ray job submit --no-wait --address x --runtime-env=env.yaml --runtime-env-json=\'{"env_vars": {"C": "3"}}\' \\\n'
        "  -- python3 -m verl.trainer.main_ppo a=1 +ray_kwargs.ray_init.runtime_env.env_vars.D=4",
    )
    assert given(found) == {"A": "1", "B": "2", "C": "3", "D": "4"}
    assert all(setting.reaches_workers for setting in found.settings)
    assert words_of(found)[0] == "a=1"


def test_runtime_env_file(tmp_path: Path) -> None:
    found = read(tmp_path, "working_dir: ./\nenv_vars:\n  A: 1\n  B:\n", name="runtime_env.yaml")
    assert found.settings == (
        Setting("A", "1", str(tmp_path / "runtime_env.yaml"), 3, reaches_workers=True),
        Setting("B", None, str(tmp_path / "runtime_env.yaml"), 4, reaches_workers=True),
    )
    assert read(tmp_path, "a: [", name="runtime_env.yaml").unread


def test_runtime_env_with_invalid_yaml_is_reported(tmp_path: Path) -> None:
    (error,) = read(tmp_path, "env_vars:\n  A: [1\n  B: 2\n", name="env.yaml").refused
    assert error.line
    assert "invalid YAML" in error.message


ENV_YAML = "working_dir: ./\nexcludes: ['/.git/']\nenv_vars: {A: '1'}\n"


SENT = {
    "by a file": ("ray job submit --runtime-env=env.yaml -- python3 -m verl.trainer.main_ppo", "./", ("/.git/",)),
    "by an option, which counts": ("ray job submit --runtime-env env.yaml --working-dir $HOME/x -- python3 -m verl.trainer.main_ppo", "/home/u/x", ("/.git/",)),
    "by JSON": ("ray job submit --runtime-env-json '{\"working_dir\": \"/j\"}' -- python3 -m verl.trainer.main_ppo", "/j", ()),
    "by the driver": ("python3 -m verl.trainer.main_ppo +ray_kwargs.ray_init.runtime_env.working_dir=/d", "/d", ()),
    "not to be told": ("ray job submit --working-dir $(find_it) -- python3 -m verl.trainer.main_ppo", None, ()),
}  # fmt: skip


@pytest.mark.parametrize("case", SENT)
def test_folder_that_ray_uploads_is_found(tmp_path: Path, case: str) -> None:
    (tmp_path / "env.yaml").write_text(ENV_YAML)
    script, folder, excludes = SENT[case]
    found = read(tmp_path, script).working_dir
    assert found is not None
    assert (found.folder, found.excludes) == (folder, excludes)


def test_runtime_env_file_alone_names_the_folder(tmp_path: Path) -> None:
    found = read(tmp_path, "env_vars: {}\nworking_dir: ./job\n", name="env.yaml").working_dir
    assert found is not None
    assert (found.folder, found.line, found.listed_in) == ("./job", 2, str(tmp_path / "env.yaml"))


@pytest.mark.parametrize("script", ["ray job submit -- python3 -m verl.trainer.main_ppo", "python3 -m verl.trainer.main_ppo"])  # fmt: skip
def test_no_folder_is_uploaded(tmp_path: Path, script: str) -> None:
    assert read(tmp_path, script).working_dir is None
