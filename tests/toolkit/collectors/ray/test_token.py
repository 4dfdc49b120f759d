"""Ray's token: where it lies, and that it stays there."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.ray.token import RayToken, ray_token
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

NO_SCRIPT = Absent("none was named")
SETUP = "_private/authentication/authentication_token_setup.py"


def look(
    root: Path, setup: str | None = "", launch: Launch | Unknown = NO_SCRIPT, **environ: str
) -> RayToken:
    tree = root / "site-packages" / "ray"
    if setup is not None:
        (tree / SETUP).parent.mkdir(parents=True)
        (tree / SETUP).write_text(setup)
    machine = Machine(environ={"HOME": str(root), **environ}, cwd=root)
    trees = LibraryTrees((Tree(str(tree), "ray", "2.60.0", "site-packages"),))
    given = variables.collect(machine)
    found = ray_token.collect(trees, given, launch, machine)
    assert isinstance(found, RayToken)
    assert "0123" not in repr(found)
    return found


def test_ray_without_tokens(tmp_path: Path) -> None:
    assert look(tmp_path, None) == RayToken(known=False)


def test_client_that_uses_a_token_by_default(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123")
    found = look(tmp_path, "def maybe_enable_token_auth_if_token_available(): ...")
    assert found == RayToken(path=str(tmp_path / ".ray" / "auth_token"), by_itself=True)
    assert found.is_set


@pytest.mark.parametrize("content", [None, ""])
def test_named_token_file_that_is_missing_or_empty(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "mine").write_text(content)
    found = look(tmp_path, RAY_AUTH_TOKEN_PATH="mine", RAY_AUTH_MODE="Token")
    assert (found.mode, found.is_set) == ("token", False)


def test_token_in_a_variable_is_not_read(tmp_path: Path) -> None:
    found = look(tmp_path, RAY_AUTH_TOKEN="0123")
    assert (found.in_variable, found.is_set) == (True, True)


def test_mode_is_read_from_the_environment_of_the_driver(tmp_path: Path) -> None:
    """The workers may have another one, from their raylet."""
    launch = Launch((), (Setting("RAY_AUTH_MODE", "token", "run.sh", 3),))
    assert look(tmp_path, launch=launch, RAY_AUTH_MODE="disabled").mode == "token"
