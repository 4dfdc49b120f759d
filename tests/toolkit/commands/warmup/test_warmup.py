"""`verl-doctor warmup` as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.evicted import cached_share, evict, written
from support.running import Doctor
from support.schemas import validate
from support.trying import unless_disturbed

from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.warmup.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.warmup.warmup import HERE, Node, Warmup
from verl_doctor.toolkit.system.cgroups import ControlGroups, Group
from verl_doctor.toolkit.warm.files import LeftOut
from verl_doctor.toolkit.warm.room import Room, least
from verl_doctor.toolkit.warm.summary import Summary
from verl_doctor.toolkit.warm.warm import Mount

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def model(disk: Path) -> Path:
    for number in (1, 2):
        written(disk / f"model-{number}.safetensors", MIB)
    (disk / "config.json").write_text("{}")
    return disk


@pytest.mark.slow
@unless_disturbed
def test_model_is_warmed_and_the_result_reported(here: Doctor, model: Path) -> None:
    shards = sorted(model.glob("*.safetensors"))
    for shard in shards:
        evict(shard)
    cold = here("warmup", "--model", model, "--dry-run", cwd=model)
    assert cold.returncode == 1
    assert cold.stdout.startswith("COLD  ")
    assert [cached_share(shard) for shard in shards] == [0, 0]
    done = here("warmup", "--model", model, "--format", "json", cwd=model)
    report = json.loads(done.stdout)
    validate(report, schema_text("warmup"))
    assert (done.returncode, report["verdict"]) == (0, "ok")
    (node,) = report["nodes"]
    assert (node["pages"]["files"], node["pages"]["resident"]) == (3, 2 * MIB + 2)
    assert [cached_share(shard) for shard in shards] == [1, 1]
    assert here("warmup", "--path", model, "--dry-run", cwd=model).returncode == 0


@pytest.mark.slow
@unless_disturbed
def test_launch_script_names_the_model_and_the_data(here: Doctor, model: Path) -> None:
    written(model / "train.parquet", MIB)
    script = model / "run.sh"
    script.write_text(
        f"python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path={model} data.train_files={model}/train.parquet\n"
    )
    done = here("warmup", script, cwd=model)
    assert done.returncode == 0, done.stdout
    assert "WARM" in done.stdout
    assert cached_share(model / "train.parquet") == 1
    script.write_text("python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/none\n")
    done = here("warmup", script, cwd=model)
    assert done.returncode == 1
    assert "the model: Qwen/none is not a folder here" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--limit", "much"], "'much' is not a size; for instance 500M, 40G or 1.5T"),
        (["--limit", "0"], "the size is zero"),
        (["--ranks", "7-"], "'7-' does not name ranks; for instance 0-7 or 0,4"),
        (["--ranks", "7-3"], "'7-3' does not name ranks"),
        (["--path", "no such"], "no such file or folder"),
        (["--path", ""], "it is empty; is a variable unset?"),
        ([], "nothing to read: give a launch script, --model DIR"),
        (["--at-once", "0"], "--at-once"),
    ],
)
def test_usage_errors_print_one_sentence(
    here: Doctor, tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = here("warmup", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in it", "where a .pth file leads"])
def test_missing_bytecode_is_written_and_undo_removes_it(
    here: Doctor, tmp_path: Path, elsewhere: bool
) -> None:
    """Also where PY103 would leave it to the first import."""
    environment = tmp_path / "env"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    if elsewhere:
        (site / "machine.pth").write_text(f"{tmp_path / 'machine'}\n")
        site = tmp_path / "machine"
    for name in ("__init__", *(f"part{number}" for number in range(600))):
        source = site / "torch" / f"{name}.py"
        source.parent.mkdir(exist_ok=True, parents=True)
        source.write_text("x = 1\n")
    (site / "torch-2.9.0.dist-info").mkdir()
    (site / "torch-2.9.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n"
    )
    here("warmup", "--python", environment, "--path", environment / "pyvenv.cfg", cwd=tmp_path)
    assert not (site / "torch" / "__pycache__").exists(), "nothing is compiled without --bytecode"
    words = ("--python", environment, "--bytecode")
    assert "would be written" in here("warmup", *words, "--dry-run", cwd=tmp_path).stdout
    assert not (site / "torch" / "__pycache__").exists()
    done = here("warmup", *words, cwd=tmp_path)
    assert (done.returncode, "reverts it" in done.stdout) == (0, True)
    assert "600 of 601 sources have no bytecode cache" in done.stderr or "601 of 601 sources" in done.stderr
    assert len(list((site / "torch" / "__pycache__").iterdir())) == 601
    assert "nothing to compile" in here("warmup", *words, cwd=tmp_path).stdout
    here("undo", "--python", environment, cwd=tmp_path)
    assert not (site / "torch" / "__pycache__").exists()


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@unless_disturbed
def test_signal_stops_the_warmup_with_a_summary(disk: Path, number: int) -> None:
    """The files are many, so that there is something left to do when the signal comes."""
    for index in range(64):
        written(disk / f"part-{index}", 4 * MIB)
    command = [sys.executable, "-m", "verl_doctor.toolkit", "warmup", "--path", str(disk), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "reads 256 MiB" in running.stderr.readline()
        running.send_signal(number)
        report = json.loads(running.communicate(timeout=300)[0])
    (node,) = report["nodes"]
    if node["pages"]["ended"]:  # else it was faster than the signal
        assert (running.returncode, node["verdict"]) == (1, "failures")
        assert node["pages"]["ended"] == f"{signal.Signals(number).name} ended it"
    now = sum(cached_share(disk / f"part-{index}") for index in range(64)) * 4 * MIB
    assert now <= node["pages"]["resident"] <= now * 1.1 + MIB, "the kernel may push pages out meanwhile"


def test_room_is_limited_by_the_machine_and_every_control_group() -> None:
    host = HostMemory(total=320 * GIB, available=100 * GIB)
    assert least(host, ControlGroups()) == Room(90 * GIB, "memory of this machine")
    group = Group("/sys/fs/cgroup/job", memory=64 * GIB, memory_used=12 * GIB)
    full = Group("/sys/fs/cgroup", memory=64 * GIB, memory_used=64 * GIB)
    assert least(host, ControlGroups((group,))) == Room(50 * GIB, "memory limit of /sys/fs/cgroup/job")
    assert least(host, ControlGroups((group, full))) == Room(0, "memory limit of /sys/fs/cgroup")
    assert least(HostMemory(None), ControlGroups()) == Room()


def pages(**values: object) -> Summary:
    plain = {
        "files": 9,
        "size": 9 * GIB,
        "wanted": 9 * GIB,
        "before": 0,
        "resident": 9 * GIB,
        "read": 9 * GIB,
    }
    return Summary(**{**plain, "seconds": 3.0, "done": True, **values})  # type: ignore[arg-type]


def test_nodes_with_the_same_result_share_a_line() -> None:
    done = Warmup(
        (
            *(Node(f"node{number}", pages()) for number in range(1, 9)),
            Node("node9", missing="Ray declared it dead"),
            Node(
                "nod\x1b[31me10", pages(resident=4 * GIB, troubles=(LeftOut("/m/a", "Input/output error"),))
            ),
        )
    )
    report = "\n".join(map(str, text_lines(done, 80)))
    assert "WARM  node[1-8]: 9.0 GiB in 9 files are resident" in report
    assert "NO ANSWER  node9: Ray declared it dead" in report
    assert "/m/a: Input/output error" in report
    assert "\x1b" not in report + "\n".join(markdown_lines(done))
    assert max(map(len, report.splitlines())) <= 80
    assert (done.verdict, done.exit_code()) == ("failures", 1)
    assert Warmup((Node("a", pages()), Node("b", missing="it hangs"))).exit_code() == 3
    assert Warmup((Node(HERE, pages(resident=None)),)).exit_code() == 3


def test_shared_resource_of_two_nodes_is_the_mount() -> None:
    from verl_doctor.toolkit.commands.warmup.cluster import shares

    mounts = (Mount("server:/models", "nfs4", shared=True), Mount("/dev/nvme0n1", "ext4"))
    assert shares(pages(mounts=mounts)) == ("nfs4 server:/models",)
