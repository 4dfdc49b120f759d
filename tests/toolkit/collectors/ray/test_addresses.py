"""Sources of a cluster address, Ray's order of precedence, and connection results."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Setting, Word
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.ray.addresses import (
    UNDETERMINED,
    Place,
    RayAddresses,
    Source,
    ray_addresses,
)
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

RAY = LibraryTrees((Tree("/env/ray", "ray", "2.60.0", "site-packages"),))
NOTHING = Absent("none was named")


def look(
    root: Path,
    launch: Launch | Unknown = NOTHING,
    processes: Processes | Unknown = NOTHING,
    trees: LibraryTrees = RAY,
    ray_address: str = "",
    **environ: str,
) -> RayAddresses:
    target = Target(Path("/env/bin/python"), "--python", ray_address=ray_address)
    machine = Machine(environ=environ, root=root, cwd=root)
    found = ray_addresses.collect(target, trees, Variables(environ), launch, NOTHING, processes, machine)
    assert isinstance(found, RayAddresses)
    return found


def write_address(root: Path, address: str, folder: str = "/tmp/ray") -> None:
    below = root / folder.lstrip("/")
    below.mkdir(parents=True)
    (below / "ray_current_cluster").write_text(address)


def running(
    root: Path, *pids: int, role: str = "raylet", cluster: str = "10.0.0.1:6379", mine: bool = True
) -> Processes:
    host, _, port = cluster.rpartition(":")
    options = {
        "raylet": ["--gcs-address=" + cluster, "--session-name=session_of_" + port],
        "gcs_server": [
            f"--gcs_server_port={port}",
            f"--node-ip-address={host}",
            "--session-name=session_of_" + port,
        ],
    }
    for pid in pids:
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_text("\0".join([f"/env/ray/{role}", *options[role]]))
        (folder / "status").write_text(f"Name:\t{role}\nUid:\t{os.geteuid()}\t{os.geteuid()}\t0\t0\n")
    return Processes(tuple(Process(pid, 1, role, role, mine, float(pid)) for pid in pids))  # type: ignore[arg-type]


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """A port with a listener, and one without."""
    with socket.socket() as listening, socket.socket() as bound:
        for each in (listening, bound):
            each.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1], bound.getsockname()[1]


def test_each_address_is_tried(tmp_path: Path, ports: tuple[int, int]) -> None:
    live, dead = ports
    write_address(tmp_path, f"127.0.0.1:{live}")
    found = look(tmp_path, RAY_ADDRESS=f"127.0.0.1:{dead}")
    assert [(place.source, place.reply) for place in found.places] == [
        ("RAY_ADDRESS", "refused"),
        ("address file", "connected"),
    ]
    assert found.taken is not None
    assert found.taken.address == f"127.0.0.1:{dead}"


def test_address_file_is_read_from_the_folder_that_ray_computes(tmp_path: Path) -> None:
    write_address(tmp_path, "127.0.0.1:1\n", "/scratch/me/ray")
    found = look(tmp_path, RAY_TMPDIR="/scratch/me", TMPDIR="/elsewhere")
    assert found.folder == "/scratch/me/ray"
    assert found.file is not None
    assert (found.file.path, found.file.mine) == ("/scratch/me/ray/ray_current_cluster", True)
    assert found.taken is not None
    assert found.taken.text == "127.0.0.1:1"
    assert look(tmp_path, TMPDIR="/elsewhere").folder == "/elsewhere/ray"
    assert look(tmp_path).folder == "/tmp/ray"


def test_launch_script_overrides_the_variables(tmp_path: Path) -> None:
    write_address(tmp_path, "127.0.0.1:1", "/scratch/ray")
    settings = (
        Setting("RAY_ADDRESS", None, "run.sh", 2, removed=True),
        Setting("RAY_TMPDIR", "/scratch", "run.sh", 3),
    )
    found = look(tmp_path, Launch((), settings), RAY_ADDRESS="10.0.0.9:6379", RAY_TMPDIR="/other")
    assert [place.source for place in found.places] == ["address file"]
    settings = (Setting("RAY_ADDRESS", "127.0.0.1:2", "run.sh", 4),)
    found = look(tmp_path, Launch((), settings), RAY_ADDRESS="10.0.0.9:6379")
    assert found.taken is not None
    assert (found.taken.text, found.taken.path, found.taken.line) == ("127.0.0.1:2", "run.sh", 4)


def test_undetermined_address_in_the_script_is_not_guessed(tmp_path: Path) -> None:
    """Neither the shell's address nor the file counts if the script sets another one."""
    write_address(tmp_path, "127.0.0.1:1")
    for setting in (
        Setting("RAY_ADDRESS", None, "run.sh", 3),
        Setting("RAY_ADDRESS", "a:1", "run.sh", 3, conditional=True),
    ):
        found = look(tmp_path, Launch((), (setting,)), RAY_ADDRESS="127.0.0.1:2")
        assert found.taken is not None
        assert (found.taken.text, found.taken.address, found.taken.reply) == (UNDETERMINED, "", "")
    found = look(tmp_path, Launch((), (Setting("RAY_TMPDIR", None, "run.sh", 3),)))
    assert (found.folder, found.file) == (UNDETERMINED, None)
    assert found.taken is not None
    assert found.taken.text == UNDETERMINED
    words = (Word(None, "run.sh", 7, "ray_kwargs.ray_init.address=$HEAD"),)
    found = look(tmp_path, Launch((), command=Command("verl.trainer.main_ppo", words, "run.sh", 6)))
    assert found.taken is not None
    assert (found.taken.source, found.taken.text) == ("ray.init", UNDETERMINED)


def test_arguments_of_the_command_and_of_ray_start_are_read(tmp_path: Path) -> None:
    words = (Word("+ray_kwargs.ray_init.address=127.0.0.1:3", "run.sh", 7),)
    starts = (
        (Word("--address", "run.sh", 5), Word("127.0.0.1:4", "run.sh", 5)),
        (Word("--head", "run.sh", 4),),
    )
    launch = Launch((), command=Command("verl.trainer.main_ppo", words, "run.sh", 6), ray_starts=starts)
    found = look(tmp_path, launch, RAY_ADDRESS="127.0.0.1:2")
    assert [(place.source, place.port) for place in found.places] == [
        ("ray.init", 3),
        ("RAY_ADDRESS", 2),
        ("ray start --address", 4),
        ("ray start --head", 6379),
    ]
    assert found.taken is found.places[0]


def test_conditional_head_is_not_relied_on(tmp_path: Path) -> None:
    write_address(tmp_path, "127.0.0.1:1")
    starts = (
        (Word("--head", "run.sh", 4, conditional=True),),
        (Word("--address", "run.sh", 6), Word(None, "run.sh", 6, "$HEAD")),
    )
    found = look(tmp_path, Launch((), ray_starts=starts))
    assert found.taken is not None
    assert (found.taken.source, found.taken.text, found.head) == ("ray start --head", UNDETERMINED, None)
    assert [place.text for place in found.places if place.source == "ray start --address"] == [UNDETERMINED]


def test_processes_of_one_cluster_are_one_entry(tmp_path: Path) -> None:
    server = running(tmp_path, 10, role="gcs_server")
    raylets = running(tmp_path, 11, 12)
    other = running(tmp_path, 20, cluster="10.0.0.1:7777", mine=False)
    found = look(tmp_path, processes=Processes(server.running + raylets.running + other.running))
    assert [(ray.address, ray.gcs, ray.raylets, ray.mine) for ray in found.running] == [
        ("10.0.0.1:6379", 10, (11, 12), True),
        ("10.0.0.1:7777", 0, (20,), False),
    ]
    assert found.running[0].session == "session_of_6379"
    assert found.taken is None  # without "auto" Ray does not look at processes


def places(*given: tuple[Source, str]) -> RayAddresses:
    found = [
        Place(source, source, text, text.rpartition(":")[0], 1 if ":" in text else 0)
        for source, text in given
    ]
    return RayAddresses(tuple(found))


FILE: tuple[Source, str] = ("address file", "file:1")
ONE: tuple[Source, str] = ("raylet", "one:1")
TWO: tuple[Source, str] = ("raylet", "two:1")


# What Ray 2.60 does in each case (services.py: canonicalize_bootstrap_address), "" for a new cluster.
@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ((), ""),
        ((FILE, ONE), "file:1"),
        ((ONE,), ""),
        ((("ray.init", "auto"), FILE, ONE), "one:1"),
        ((("ray.init", "auto"), FILE, ONE, TWO), "file:1"),
        ((("ray.init", "auto"), FILE), "file:1"),
        ((("RAY_ADDRESS", "auto"), ONE), "one:1"),
        ((("ray.init", "auto"), ("RAY_ADDRESS", "env:1"), FILE), "env:1"),
        ((("ray.init", "given:1"), ("RAY_ADDRESS", "env:1"), FILE), "given:1"),
        ((("RAY_ADDRESS", "local"), FILE), "local"),
        ((("--ray-address", "told:1"), ("ray.init", "given:1")), "told:1"),
        ((FILE, ("ray start --head", "own:1")), "own:1"),
        ((FILE, ONE, ("ray start --address", "head:1")), "head:1"),
        ((("RAY_ADDRESS", "env:1"), ("ray start --head", "own:1")), "env:1"),
    ],
)  # fmt: skip
def test_address_precedence_matches_ray(given: tuple[tuple[Source, str], ...], taken: str) -> None:
    found = places(*given).taken
    assert (found.text if found else "") == taken


def test_environment_without_ray_is_not_inspected(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        look(tmp_path, trees=LibraryTrees(()), RAY_ADDRESS="10.0.0.1:6379")
