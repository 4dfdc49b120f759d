"""Moving house: a tree with patches, paths and a launch script leaves the cluster where it works, arrives damaged, and is mended step by step."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import alone
from support.miniatures.smoke import packages
from support.miniatures.variant_verl import variant_verl
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text

pytestmark = [pytest.mark.slow]

ENVIRON = {"PATH": "/usr/bin:/bin", "RAY_TMPDIR": "/tmp/ray-of-nobody", "LANG": "C.UTF-8"}
"""Both clusters' variables. What a person has otherwise there is another test's."""

SCRIPT = """\
#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_files=data/train.json data.val_files=data/train.json \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \\
  actor_rollout_ref.model.path=model trainer.n_gpus_per_node=1 "$@"
"""
EXAMPLE = 'BASE = "/path/to/base"\nMODEL = BASE + "/model"\nOUTPUT_DIR = BASE + "/output"\n'
PROJECT = """\
[project]
name = "verl"
version = "0.9.1"
[tool.verl-doctor]
select = ["PKG", "PY", "VLLM", "API", "CFG", "ENV", "DATA", "LOAD", "SITE", "SMOKE", "CUDA", "ATT"]
"""
"""Not judged is what other tests do on this machine meanwhile: Rays that they start and kill, ports, memory, shared memory."""
PATCHED = {
    "verl/workers/server.py": (
        "def engine(args):\n"
        "    # return start(disable_log_requests=args.disable_log_requests)  # Uky\n"
        "    return start(enable_log_requests=not args.disable_log_requests)  # Uky\n"
    ),
    "verl/workers/paths.py": (
        "def folder():\n"
        "    # return None  # Uky\n"
        "    return 'x'  # Uky\n"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with packages of a few lines, as both clusters have it."""
    prefix = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    site = packages(next(prefix.glob("lib/python*/site-packages")))
    shutil.rmtree(site / "verl")
    (site / "hydra.py").write_text("def main(**options):\n    return lambda function: function\n")
    return prefix / "bin" / "python"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree on the old cluster."""
    top = tmp_path_factory.mktemp("old") / "verl_x"
    variant_verl(top)
    files = {
        **PATCHED,
        "run.sh": SCRIPT,
        "paths.py": EXAMPLE,
        "pyproject.toml": PROJECT,
        ".gitignore": "*.log\n/data/\n/model/\n",
        **{f"verl/utils/u{number}.py": f"def f():\n    return {number}\n" for number in range(6)},
        "verl/utils/__init__.py": "",
    }
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "run.sh").chmod(0o755)
    (top / "verl" / "tools.py").symlink_to("utils/u0.py")
    return top


@pytest.fixture(scope="module")
def snapshot(original: Path, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Facts recorded on the old cluster."""
    file = tmp_path_factory.mktemp("snapshot") / "OLD.json"
    done = subprocess.run(
        alone.command("snapshot", file, "--python", environment, "run.sh"),
        cwd=original, check=False, capture_output=True, text=True, env=ENVIRON,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """The tree on the new cluster."""
    return shutil.copytree(original, tmp_path / "verl_x", symlinks=True)


class Move:
    """The checklist, run repeatedly, isolated from the networks and Rays of other tests."""

    doctor = staticmethod(alone.doctor)

    def __init__(self, top: Path, python: Path, old: Path) -> None:
        self.top = top
        self.arguments = ("checklist", "run.sh", "--python", python, "--from", old)
        self.code = -1

    def steps(self, *more: str | Path) -> dict[str, dict[str, Any]]:
        done = self.doctor(*self.arguments, *more, "--format", "json", cwd=self.top, **ENVIRON)
        assert "Traceback" not in done.stderr, done.stderr
        found = json.loads(done.stdout)
        validate(found, schema_text("checklist"))
        self.code = done.returncode
        return {step["key"]: step for step in found["steps"]}

    def does(self, step: dict[str, Any]) -> None:
        """Type the command of a step."""
        assert step["do"].startswith("verl-doctor "), step
        done = self.doctor(*shlex.split(step["do"], comments=True)[1:], cwd=self.top, **ENVIRON)
        assert done.returncode in (0, 1), done.stderr


@pytest.fixture
def move(copy: Path, environment: Path, snapshot: Path) -> Move:
    return Move(copy, environment, snapshot)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


WAYS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "rsync without the slash": (lambda top: shutil.copytree(top, top / "verl_x", symlinks=True), "tree", "nested: verl_x/"),
    "rsync that was stopped": (
        lambda top: (top / "verl/utils/u3.py").rename(top / "verl/utils/.u3.py.Qw3rT5"),
        "tree",
        "half copied: verl/utils/.u3.py.Qw3rT5",
    ),
    "a folder left out": (lambda top: shutil.rmtree(top / "verl/utils"), "tree", "missing: verl/utils/"),
    "a full disk": (lambda top: cut(top / "verl/utils/u3.py"), "tree", "shorter: verl/utils/u3.py"),
    "links followed": (
        lambda top: ((top / "verl/tools.py").unlink(), shutil.copy(top / "verl/utils/u0.py", top / "verl/tools.py")),
        "tree",
        "link: verl/tools.py",
    ),
    "modes lost": (lambda top: (top / "run.sh").chmod(0o644), "tree", "not executable: run.sh"),
    "onto an older tree": (
        lambda top: (top / "verl/utils/removed_since.py").write_text("x = 1\n"),
        "tree",
        "extra source: verl/utils/removed_since.py",
    ),
    "checked out instead of copied": (
        lambda top: (top / "verl/workers/server.py").write_text(
            "def engine(args):\n    return start(disable_log_requests=args.disable_log_requests)\n"
        ),
        "patches",
        "lost: line 2 is as it was before the patch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_faulty_copy_fails_its_step_with_a_reason(way: str, move: Move) -> None:
    damage, key, message = WAYS[way]
    damage(move.top)
    steps = move.steps()
    assert move.code == 1
    assert steps[key]["state"] == "failed", steps[key]
    assert any(message in sentence for sentence in steps[key]["evidence"]), steps[key]["evidence"]
    assert steps[key]["do"]
    other = "patches" if key == "tree" else "tree"
    assert steps[other]["state"] == "done", steps[other]


def test_step_by_step_until_all_are_done(move: Move, tmp_path: Path) -> None:
    (move.top / "verl/workers/server.py").write_text(
        "def engine(args):\n    return start(disable_log_requests=args.disable_log_requests)\n"
    )
    steps = move.steps()
    for key in ("tree", "environment", "packages"):
        assert steps[key]["state"] == "done", steps[key]
    assert {key: steps[key]["state"] for key in ("patches", "sites", "quick", "debug")} == {
        "patches": "failed", "sites": "open", "quick": "open", "debug": "open",
    }  # fmt: skip

    move.does(steps["patches"])
    steps = move.steps()
    assert steps["patches"]["state"] == "done"
    assert steps["tree"]["state"] == "done", (
        "the file differs from the original in its patch alone, or not at all"
    )

    move.does(steps["sites"])
    steps = move.steps()
    assert "MODEL is not set yet: '/path/to/base/model' is a placeholder" in str(steps["sites"]["evidence"])
    base = tmp_path / "base"
    (base / "model").mkdir(parents=True)
    (base / "output").mkdir()
    (move.top / "paths.py").write_text(EXAMPLE.replace("/path/to/base", str(base)))
    assert move.doctor("sites", "import", "paths.py", "--apply", cwd=move.top).returncode == 0
    steps = move.steps()
    assert (steps["sites"]["state"], steps["tree"]["state"]) == ("done", "done")

    move.does(steps["quick"])
    steps = move.steps()
    assert steps["quick"]["state"] == "failed"
    assert "train.json" in str(steps["quick"]["evidence"])
    (move.top / "data").mkdir()
    (move.top / "data" / "train.json").write_text('{"prompt": "1 + 1 ="}\n')
    move.does(steps["quick"])
    steps = move.steps()
    assert steps["quick"]["state"] == "done", steps["quick"]

    move.does(steps["debug"])  # writes the variant
    steps = move.steps()
    assert steps["debug"]["evidence"][0] == "its first step has not been logged yet"
    assert "run_debug.sh" in steps["debug"]["do"]
    log = move.top / "debug.log"
    log.write_text("(TaskRunner pid=3) step:0 - val/score:0.1\n" * 3)
    assert move.steps("--log", log)["debug"]["state"] == "open", "step 0 is the validation before training"
    log.write_text(
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nRuntimeError: no room\n'
    )
    failed = move.steps("--log", log)["debug"]
    assert (failed["state"], failed["do"]) == ("failed", f"verl-doctor logs {log}")
    assert "RuntimeError: no room (line 3)" in failed["evidence"][0]
    log.write_text("\x1b[36m(TaskRunner pid=3)\x1b[0m step:1 - actor/loss:0.1\n")
    steps = move.steps("--log", log)
    assert {key: step["state"] for key, step in steps.items()} == dict.fromkeys(steps, "done"), steps
    assert move.code == 0
    assert not any(step["do"] for step in steps.values())

    log.unlink()
    assert (move.steps()["debug"]["state"], move.code) == ("done", 0), "it is remembered"
    with (move.top / "verl/utils/u3.py").open("a") as file:
        file.write("# another tree\n")
    steps = move.steps()
    assert {steps[key]["state"] for key in ("quick", "debug")} == {"open"}
    assert "since then the sources of verl changed" in steps["quick"]["evidence"][0]
    assert "different: verl/utils/u3.py" in steps["tree"]["evidence"]


def test_adapted_launch_script_is_settled_by_a_completed_step(move: Move) -> None:
    with (move.top / "run.sh").open("a") as file:
        file.write("# another number of GPUs\n")
    steps = move.steps()
    assert (steps["tree"]["state"], steps["tree"]["evidence"][0]) == (
        "open", "run.sh differs from the original; a DEBUG run that logs a step shows that this is intended"
    )  # fmt: skip
    move.does(steps["debug"])
    log = move.top / "debug.log"
    log.write_text("step:1 - actor/loss:0.1\n")
    assert move.steps("--log", log)["tree"]["state"] == "done"


def test_command_for_a_missing_old_snapshot_is_shown(here: Doctor, copy: Path, environment: Path) -> None:
    done = here("checklist", "run.sh", "--python", environment, cwd=copy)
    assert done.returncode == 1
    assert f"-> verl-doctor checklist --from OLD.json --python {environment} " in done.stdout
    assert "  # OLD.json: verl-doctor snapshot OLD.json, on the old cluster\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) > 80, "a pipe gets whole lines"


def test_patches_in_a_tree_that_is_not_imported_are_reported(
    here: Doctor, copy: Path, environment: Path, snapshot: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    variant_verl(plain)
    job = tmp_path / "job"
    job.mkdir()
    done = here(
        "checklist", "--python", environment, "--from", snapshot, "--format", "json", cwd=job, PYTHONPATH=f"{plain}:{copy}"
    )  # fmt: skip
    patches = json.loads(done.stdout)["steps"][1]
    assert patches["evidence"][0] == f"2 patches of the old tree in {copy}/verl, which is not imported"
    assert (
        f"the imported verl is {plain}/verl: it comes first on the interpreter's path" in patches["evidence"]
    )
    assert patches["state"] == "failed"
    assert patches["do"].startswith(f"verl-doctor patches apply {snapshot} --apply ")


SSH = """#!/bin/sh
[ "$5" = gone ] && exit 255
[ "$5" = n3 ] && export HERE=/nowhere NCCL_IB_DISABLE=1
exec sh -c "$6"
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts simulated on this machine, with changes on n3; `gone` does not respond."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{ENVIRON['PATH']}")
    monkeypatch.setenv("HERE", str(tmp_path))


@pytest.mark.usefixtures("ssh")
def test_nodes_are_compared_with_the_old_cluster(
    here: Doctor, copy: Path, environment: Path, snapshot: Path
) -> None:
    def evidence(hosts: str) -> list[str]:
        arguments = ("--from", snapshot, "--nodes", hosts, "--budget", "600", "--format", "json")
        done = here("checklist", "--python", environment, *arguments, cwd=copy)
        assert done.stdout, (done.returncode, done.stderr)
        step = next(step for step in json.loads(done.stdout)["steps"] if step["key"] == "environment")
        return [
            sentence for sentence in step["evidence"] if "NCCL_IB_DISABLE" in sentence or "node" in sentence
        ]

    assert "2 nodes compared" in evidence("n[1-2]")
    told_apart = evidence("n[1-3],gone")
    assert any("variable NCCL_IB_DISABLE: none -> 1 on n3" in message for message in told_apart)
    assert any("1 of the new nodes did not respond: gone" in message for message in told_apart)


@pytest.mark.usefixtures("ssh")
def test_paths_are_inspected_on_every_node(here: Doctor, copy: Path, environment: Path) -> None:
    (copy / "verl-doctor.toml").write_text('[sites]\nmodel = "$HERE/verl_x"\n')

    def sites(hosts: str) -> dict[str, Any]:
        arguments = ("--nodes", hosts, "--budget", "600", "--format", "json")
        done = here("checklist", "--python", environment, *arguments, cwd=copy)
        assert done.stdout, (done.returncode, done.stderr)
        return next(step for step in json.loads(done.stdout)["steps"] if step["key"] == "sites")

    everywhere = sites("n[1-2]")
    assert everywhere["state"] == "done", everywhere
    assert "examined on 2 nodes" in everywhere["evidence"]
    lacking = sites("n[1-3]")
    assert lacking["state"] == "failed", lacking
    assert "SITE102 model: /nowhere/verl_x does not exist on this machine (n3)" in lacking["evidence"]
    unheard = sites("n1,gone")
    assert unheard["state"] == "unknown", unheard
    assert any(sentence.startswith("no response from gone") for sentence in unheard["evidence"])


def test_invalid_snapshot_is_refused(here: Doctor, copy: Path, environment: Path, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    for old, message in ((tmp_path / "no.json", "is no"), (tmp_path / "none.json", "cannot be read")):
        done = here("checklist", "--from", old, "--python", environment, cwd=copy)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
