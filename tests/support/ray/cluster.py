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

from support.ray.head import ALONE, address_in, end, raylets, until_up

_START = (
    "--block",
    "--disable-usage-stats",
    "--object-store-memory=80000000",
    *ALONE,
)


@dataclass
class Cluster:
    """A running cluster: where its GCS listens, the interpreter, the folder that is in the name or environment of all it started."""

    address: str
    python: Path
    folder: Path
    environ: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

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
        text = (
            "import sys; from ray._private.state import GlobalState; from ray._raylet import GcsClientOptions\n"
            "state = GlobalState(); state._initialize_global_state(GcsClientOptions.create(sys.argv[1], None, True, False))\n"
            "print(sum(row['Alive'] for row in state.node_table()))"
        )
        done = subprocess.run(
            [str(self.python), "-c", text, self.address],
            env=dict(self.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        return int(done.stdout or 0)

    def has(self, nodes: int) -> bool:
        """Return whether this many nodes are alive and the address is known."""
        self.address = address_in(self.folder)
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
        end(made.started, folder)
