"""Over how many nodes a job spreads, and where its head is."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, Raylets
from verl_doctor.toolkit.collectors.ray import job_nodes as ray_job_nodes
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes, RayHere, endpoint, job_nodes
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

HERE = Network(
    Resolved("node1", ("10.0.0.5",)),
    (
        Interface("lo", "loopback", up=True, addresses=("127.0.0.1",)),
        Interface("eth0", "ethernet", up=True, addresses=("192.168.7.5",)),
        Interface("bond0", "bond", up=True, addresses=("10.0.0.5",)),
    ),
    "eth0",
)
NONE = Absent("none was named")


@pytest.fixture(autouse=True)
def routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """10.0.0.0/8 is reached over bond0, everything else over eth0; `head` is 10.0.0.9."""
    monkeypatch.setattr(
        ray_job_nodes, "source_towards", lambda to: "10.0.0.5" if to.startswith("10.") else "192.168.7.5"
    )
    monkeypatch.setattr(
        ray_job_nodes, "resolve", lambda name, _: Resolved(name, ("10.0.0.9",) if name == "head" else ())
    )


def seen(
    launched: Launch | Unknown = NONE,
    configuration: Configuration | Unknown = NONE,
    raylets: Raylets | Unknown = NONE,
    machine: Machine | None = None,
    processes: JobProcesses | Unknown = NONE,
    **variables: str,
) -> JobNodes:
    found = job_nodes.collect(
        HERE, Variables(variables), launched, configuration, processes, raylets, machine or Machine()
    )
    assert isinstance(found, JobNodes)
    return found


def read(folder: Path, script: str) -> Launch:
    path = folder / "run.sh"
    path.write_text(script)
    found = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}, cwd=folder))
    assert isinstance(found, Launch)
    return found


def test_single_node_by_default() -> None:
    found = seen()
    assert found == JobNodes(interface="eth0")
    assert found.several == ""


def test_configuration_decides_the_number_of_nodes() -> None:
    assert seen(configuration=configured("trainer.nnodes=4")[0]).several == "trainer.nnodes=4"
    assert seen(configuration=configured("trainer.nnodes=1")[0], SLURM_JOB_NUM_NODES="8").several == ""
    assert seen(configuration=configured()[0], RAY_ADDRESS="10.0.0.9:6379").several == ""


@pytest.mark.parametrize(
    ("given", "several"),
    [("1", ""), ("2", "torchrun --nnodes=2"), ("1:4", "SLURM_NNODES=3"), (None, "SLURM_NNODES=3")],
)
def test_launcher_decides_where_the_trainer_does_not_read_the_setting(
    given: str | None, several: str
) -> None:
    words = configured("trainer.nnodes=8")[0]
    launcher = JobProcesses(needs_ranks=True, launcher="torchrun", options={"nnodes": given})
    found = seen(configuration=words, processes=launcher, SLURM_NNODES="3")
    assert found.several == several
    by_ray = JobProcesses(needs_ranks=False, launcher="torchrun")
    assert seen(configuration=words, processes=by_ray).several == "trainer.nnodes=8"


def test_words_of_the_command_suffice(tmp_path: Path) -> None:
    found = seen(read(tmp_path, "python -m verl.trainer.main_ppo trainer.nnodes=2 a=1\n"))
    assert (found.nodes, found.several) == (2, "trainer.nnodes=2")


def test_slurm_variables_are_used_if_the_script_is_undetermined(tmp_path: Path) -> None:
    script = read(tmp_path, "python -m verl.trainer.main_ppo trainer.nnodes=$(cat nodes) a=1\n")
    assert seen(script).nodes is None
    assert seen(script, SLURM_JOB_NUM_NODES="3").several == "SLURM_JOB_NUM_NODES=3"


def test_remote_head_implies_several_nodes() -> None:
    found = seen(RAY_ADDRESS="head:6379")
    assert found.several == "the head 10.0.0.9 (RAY_ADDRESS of this shell) is another machine"
    assert found.interface == "bond0"
    assert seen(RAY_ADDRESS="auto").several == ""
    assert seen(RAY_ADDRESS="10.0.0.5:6379").several == ""


def test_local_head_names_its_interface() -> None:
    assert seen(MASTER_ADDR="10.0.0.5").interface == "bond0"
    assert seen(MASTER_ADDR="127.0.0.1").interface == "eth0"


def test_unresolvable_head_has_no_address() -> None:
    (head,) = seen(RAY_ADDRESS="ray://elsewhere:10001").heads
    assert (head.host, head.port, head.address, head.mine) == ("elsewhere", 10001, "", False)


def test_ray_start_in_the_script(tmp_path: Path) -> None:
    script = "srun -w node2 ray start --address=10.0.0.9:6379 --block &\nray start --address head:6379\n"
    found = seen(read(tmp_path, script))
    assert [(head.host, head.port, head.line) for head in found.heads] == [
        ("10.0.0.9", 6379, 1),
        ("head", 6379, 2),
    ]


def test_running_raylet_names_its_head() -> None:
    running = Raylets((Raylet(77, "10.0.0.5", "10.0.0.9:6379", "session_1", 9.0, Variables()),))
    found = seen(raylets=running)
    assert [(head.given_by, head.interface) for head in found.heads] == [("raylet 77", "bond0")]
    assert found.rays == (RayHere(77, "10.0.0.5"),)


def test_ray_in_another_network_namespace_is_ignored(tmp_path: Path) -> None:
    for process, number in (("self", 1), ("77", 1), ("78", 2)):
        folder = tmp_path / "proc" / process / "ns"
        folder.mkdir(parents=True)
        (folder / "net").symlink_to(f"net:[{number}]")
    both = Raylets(tuple(Raylet(pid, "10.0.0.5", "10.0.0.9:1", "s", 9.0, Variables()) for pid in (77, 78)))
    found = seen(raylets=both, machine=Machine(root=tmp_path))
    assert [ray.pid for ray in found.rays] == [77]
    assert [head.given_by for head in found.heads] == ["raylet 77"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:6379", ("10.0.0.1", 6379)),
        ("10.0.0.1", ("10.0.0.1", 0)),
        ("ray://head-0.cluster.local:10001", ("head-0.cluster.local", 10001)),
        ("http://[fd00::1]:8265/", ("fd00::1", 8265)),
        ("fd00::1", ("fd00::1", 0)),
        ("auto", None),
        ("local", None),
        ("", None),
        ("$HEAD:6379", None),
        ("10.0.0.1:6379:7", None),
    ],
)
def test_addresses_of_heads(text: str, expected: tuple[str, int] | None) -> None:
    assert endpoint(text) == expected


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("#SBATCH --nodes=4", 4),
        ("#SBATCH --job-name=x -N 2", 2),
        ("#SBATCH -N2", 2),
        ("#SBATCH --nodes 2-8", 8),
        ("#SBATCH --nodes=1\n#SBATCH --nodes=3", 3),
        ("#SBATCH --ntasks-per-node=8", None),
        ("##SBATCH --nodes=4", None),
        ("set -x\n#SBATCH --nodes=4", None),
    ],
)
def test_node_count_is_read_from_a_batch_script(tmp_path: Path, line: str, nodes: int | None) -> None:
    script = f"#!/bin/bash\n{line}\npython -m verl.trainer.main_ppo trainer.nnodes=$SLURM_NNODES a.b=1\n"
    found = seen(read(tmp_path, script))
    assert (found.nodes, found.given_by) == (nodes, "#SBATCH --nodes" if nodes else "")
    assert seen(read(tmp_path, script), SLURM_NNODES="5").nodes == 5
