"""Ties between processes: real pipes, sockets and shared memory."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_ties import Tie, ties_of
from verl_doctor.toolkit.system.unix_sockets import unix_peers

Sleeper = Callable[..., int]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Start a process that has these descriptors open; give its number."""
    with ExitStack() as started:

        def start(*descriptors: int, stdout: int = subprocess.DEVNULL) -> int:
            process = subprocess.Popen(
                ["sleep", "600"],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
            )
            started.callback(process.wait)
            started.callback(process.kill)
            return process.pid

        yield start


def ties(pid: int) -> set[Tie]:
    """Ties of one process."""
    return set(ties_of([pid], Machine())[pid])


@pytest.mark.slow
def test_pipe_ties_its_reader_to_its_writer(sleeper: Sleeper) -> None:
    reading, writing = os.pipe()
    reader, writer, another = sleeper(reading), sleeper(writing), sleeper(writing)
    os.close(reading)
    os.close(writing)
    assert ties(reader) == {Tie(writer, "a pipe"), Tie(another, "a pipe")}
    assert ties(writer) == {Tie(reader, "a pipe")}  # who writes there, too, does not need it


def test_pipe_with_a_closed_end_has_no_tie(sleeper: Sleeper) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert ties(sleeper(writing)) == set()
    os.close(writing)


def test_output_streams_are_distinguished(sleeper: Sleeper) -> None:
    reading, writing = os.pipe()
    reader = sleeper(reading)
    os.close(reading)
    assert ties(sleeper(stdout=writing)) == {Tie(reader, "a pipe", standard=True)}
    os.close(writing)


def test_named_pipe(sleeper: Sleeper, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    both = os.open(tmp_path / "fifo", os.O_RDWR)
    first, second = sleeper(both), sleeper(both)
    os.close(both)
    assert ties(first) == {Tie(second, "a pipe")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_unix_sockets(sleeper: Sleeper, kind: socket.SocketKind) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    with closing(here), closing(there):
        first, second = sleeper(here.fileno()), sleeper(there.fileno())
    assert ties(first) == {Tie(second, "a connection")}
    assert ties(second) == {Tie(first, "a connection")}


@pytest.mark.slow
def test_unix_socket_with_a_hidden_peer(sleeper: Sleeper) -> None:
    here, there = socket.socketpair()
    with closing(there):  # by this process, which does not count: as if another container held it
        with closing(here):
            pid = sleeper(here.fileno())
        assert ties(pid) == {Tie(0, "a Unix socket")}
    assert ties(pid) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_connections(sleeper: Sleeper, family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as server:
        server.bind((address, 0))
        server.listen()
        with socket.create_connection(server.getsockname()[:2]) as client:
            accepted, _ = server.accept()
            with accepted:
                waits, serves = sleeper(client.fileno()), sleeper(accepted.fileno(), server.fileno())
    assert ties(waits) == {Tie(serves, "a connection")}
    assert ties(serves) == {Tie(waits, "a connection")}


@pytest.mark.slow
def test_client_waiting_to_be_accepted_is_tied(sleeper: Sleeper) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        serves = sleeper(server.fileno())
        with socket.create_connection(("127.0.0.1", port)) as client:
            waits = sleeper(client.fileno())
        assert ties(waits) == {Tie(0, f"a connection with 127.0.0.1:{port}")}
    assert ties(serves) == set()


@pytest.mark.slow
def test_shared_memory(sleeper: Sleeper) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as segment:
        segment.truncate(mmap.PAGESIZE)
        script = "import mmap,os,sys,time; m=mmap.mmap(int(sys.argv[1]),0,mmap.MAP_SHARED,int(sys.argv[2])); print(1,flush=True); time.sleep(600)"
        with ExitStack() as started:

            def maps(protection: int) -> int:
                shown = os.open(segment.name, os.O_RDWR if protection & mmap.PROT_WRITE else os.O_RDONLY)
                started.callback(os.close, shown)
                process = subprocess.Popen(
                    [sys.executable, "-c", script, str(shown), str(protection)],
                    pass_fds=[shown],
                    stdout=subprocess.PIPE,
                )
                started.callback(process.communicate)
                started.callback(process.kill)
                assert process.stdout is not None
                process.stdout.readline()
                return process.pid

            writer = maps(mmap.PROT_READ | mmap.PROT_WRITE)
            first, second = maps(mmap.PROT_READ), maps(mmap.PROT_READ)
            assert {tie for tie in ties(writer) if not tie.standard} == {
                Tie(first, "shared memory"),
                Tie(second, "shared memory"),
            }
            # Two that only read it, such as a model in /dev/shm, have no need of each other.
            assert {tie for tie in ties(first) if not tie.standard} == {Tie(writer, "shared memory")}


def test_ended_process_has_no_ties() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert ties(process.pid) <= {Tie(0, "descriptors that cannot be examined")}


def test_kernel_lists_connected_sockets() -> None:
    here, there = socket.socketpair()
    with closing(here), closing(there):
        inodes = os.fstat(here.fileno()).st_ino, os.fstat(there.fileno()).st_ino
        peers = unix_peers()
        assert peers is not None
        assert (peers[inodes[0]], peers[inodes[1]]) == (inodes[1], inodes[0])
    assert inodes[0] not in (unix_peers() or {})
