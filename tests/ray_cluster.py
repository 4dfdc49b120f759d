"""A real Ray of several raylets on this machine, in folders and ports of its own, every process of it ended by number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from ray_head import ALONE, STARTING, address_in, below, end

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
    ) -> None:
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

    def raylets(self) -> list[psutil.Process]:
        """The raylets, the oldest first."""
        mine = [one for one in below(self.folder) if one.name() == "raylet"]
        return sorted(mine, key=lambda one: one.create_time())

    def processes(self) -> list[psutil.Process]:
        """All that belongs to this cluster."""
        return list(below(self.folder))

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

    def wait_for(self, nodes: int, seconds: float = STARTING) -> None:
        """Wait until so many nodes are alive. Raises AssertionError when they are not in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if len(self.raylets()) >= nodes and self.nodes() == nodes:
                return
            time.sleep(0.5)
        said = "\n".join(log.read_text("utf-8", "replace")[-1000:] for log in self.folder.glob("start-*.log"))
        raise AssertionError(f"{self.nodes()} of {nodes} nodes came up within {seconds:.0f} s: {said}")


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
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(folder),
        "HOME": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    made = Cluster("", python, folder, environ)
    here = ("--node-ip-address=127.0.0.1",)
    try:
        for number in range(nodes):
            role = (
                ("--head", "--port=0", "--include-dashboard=false")
                if number == 0
                else (f"--address={made.address}",)
            )
            other = last if number == nodes - 1 else None
            made.start(
                *role, *here, python=other, environ=each[number] if number < len(each) else None, cpus=cpus
            )
            made.address = made.address or address_in(folder)
            made.wait_for(number + 1)  # raylets that start at the same moment take each other's ports
        yield made
    finally:
        end(made.started, folder)
