"""A real Ray of several raylets on this machine, in private folders and ports, every process ended by number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from support.ray.head import ALONE, LEAN, address_in, end, raylets, until_up

_START = ("--block", "--disable-usage-stats", "--object-store-memory=80000000", *LEAN, *ALONE)
# Answers each line with how many nodes are alive and how many drivers are connected: Ray is imported once, not for each question.
_STATE = """
import sys
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
state._initialize_global_state(GcsClientOptions.create(sys.argv[1], None, True, False))
for line in sys.stdin:
    alive, connected = (row["Alive"] for row in state.node_table()), (not row["IsDead"] for row in state.job_table())
    print(sum(alive), sum(connected), flush=True)
"""


@dataclass
class Cluster:
    """A running cluster: where its GCS listens, the interpreter, the folder that is in the name or environment of all it started."""

    address: str
    python: Path
    folder: Path
    environ: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _answering: subprocess.Popen[str] | None = None

    def start(
        self,
        *options: str,
        environ: Mapping[str, str] | None = None,
        cpus: int = 1,
        python: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Begin to start one node."""
        ray = [str(python or self.python), "-m", "ray.scripts.scripts"]
        command = [*ray, "start", *options, f"--num-cpus={cpus}", *_START]
        with (self.folder / f"start-{len(self.started)}.log").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    command,
                    env={**self.environ, **(environ or {})},
                    start_new_session=True,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return self.started[-1]

    def raylets(self) -> list[psutil.Process]:
        """Return the raylets, the oldest first."""
        return raylets(self.folder)

    def nodes(self) -> int:
        """How many nodes the control store calls alive."""
        return self._state()[0]

    def jobs(self) -> int:
        """How many drivers the control store calls connected."""
        return self._state()[1]

    def _state(self) -> list[int]:
        """Both numbers, from a process that lives as long as the cluster; 0 if that cannot connect."""
        if self._answering is None:
            self._answering = subprocess.Popen(
                [str(self.python), "-c", _STATE, self.address],
                env=dict(self.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
            )
        assert self._answering.stdin is not None
        assert self._answering.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._answering.stdin.write("\n")
        numbers = [int(number) for number in self._answering.stdout.readline().split()]
        if not numbers:
            self._forget()
        return numbers or [0, 0]

    def _forget(self) -> None:
        """End the process that answers."""
        if self._answering is not None:
            self._answering.kill()
            with contextlib.suppress(BrokenPipeError):
                self._answering.communicate()
        self._answering = None

    def end(self) -> None:
        """End all that it started."""
        self._forget()
        end(self.started, self.folder)

    def has(self, nodes: int) -> bool:
        """Return whether this many nodes are alive and the address is known."""
        address = address_in(self.folder)
        if address != self.address:
            self._forget()
            self.address = address
        return bool(self.address) and len(self.raylets()) >= nodes and self.nodes() == nodes


@contextlib.contextmanager
def cluster(
    python: Path,
    nodes: int,
    *,
    each: tuple[Mapping[str, str], ...] = (),
    cpus: int = 1,
    last: Path | None = None,
) -> Iterator[Cluster]:
    """Start a head and further nodes, node number N with the variables `each[N]`, and end all that they started.

    The `last` one may have another interpreter.
    """
    folder = Path(tempfile.mkdtemp(prefix="vd-", dir="/tmp"))  # a short path: sockets lie in it
    common = {
        **os.environ,
        "RAY_TMPDIR": str(folder),
        "HOME": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    made = Cluster("", python, folder, common)
    here = ("--node-ip-address=127.0.0.1",)
    try:
        for number in range(nodes):
            role = (
                ("--head", "--port=0", "--include-dashboard=false")
                if number == 0
                else (f"--address={made.address}",)
            )
            other = last if number == nodes - 1 else None
            environ = each[number] if number < len(each) else None
            begin = partial(made.start, *role, *here, python=other, environ=environ, cpus=cpus)
            until_up(begin, partial(made.has, number + 1))  # together they would take each other's ports
        yield made
    finally:
        made.end()
