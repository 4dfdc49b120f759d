"""Several "hosts" on this machine: network namespaces joined by a bridge, each with a raylet of its own, one of them cut off.

Run inside of `unshare --user --map-root-user --net --mount --uts`, where it may do all that and none of it is seen outside:
`ray_hosts.py PYTHON FOLDER CHECK...` starts a head and two more, runs the words of CHECK on the head's host, cuts the last
host off as soon as CHECK announces its queries, and prints its output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOSTS = ("n1", "n2", "n3")
NETWORK = "10.78.0"
PORT = 6390
TRIES = 3
RAY = (
    "--block",
    "--no-monitor",
    "--include-log-monitor=false",
    "--disable-usage-stats",
    "--object-store-memory=80000000",
    "--num-cpus=1",
    "--dashboard-agent-listen-port=0",
    "--min-worker-port=0",
    "--max-worker-port=0",
)


def sh(command: str) -> None:
    """Run a line of shell, and fail with it."""
    subprocess.run(["sh", "-ec", command], check=True)


def inside(host: str, *words: str) -> list[str]:
    """Return the words as a command in a host's network, with its own /sys mount and host name."""
    return [
        *("ip", "netns", "exec", host),
        *("unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", host, *words),
    ]


def connect() -> None:
    """Make the bridge, and the hosts with an interface each."""
    sh("mount -t tmpfs none /run; ip link set lo up; ip link add bridge type bridge; ip link set bridge up")
    for number, host in enumerate(HOSTS, 1):
        sh(
            f"ip netns add {host}; ip link add {host} type veth peer name eth0 netns {host}\n"
            f"ip link set {host} master bridge up\n"
            f"ip -n {host} link set lo up; ip -n {host} link set eth0 up\n"
            f"ip -n {host} addr add {NETWORK}.{number}/24 dev eth0\n"
        )


def start(python: str, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start the raylets, each when the one before it has registered."""
    started = []
    for number, host in enumerate(HOSTS, 1):
        home = folder / host
        home.mkdir()
        role = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if number > 1:
            role = [f"--address={NETWORK}.1:{PORT}"]
        ray = [str(Path(python).with_name("ray")), "start", *role, f"--node-ip-address={NETWORK}.{number}"]
        environ = {**os.environ, "RAY_TMPDIR": str(home), "HOME": str(home), "TMPDIR": str(home)}
        for _ in range(TRIES):  # on a machine that does much else Ray itself gives up now and then
            with (home / "log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        inside(host, *ray, *RAY), env=environ, stdout=log, stderr=log, start_new_session=True
                    )
                )
            if runs(started[-1], home / "log"):
                break
        else:
            sys.exit(f"no Ray came up on {host}: {(home / 'log').read_text('utf-8', 'replace')}")
    return started


def runs(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until Ray writes that it runs, or has given up."""
    for _ in range(900):
        if "Ray runtime started" in log.read_text("utf-8", "replace"):
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.2)
    return False


def main(python: str, folder: str, *check: str) -> int:
    """Do what the module's docstring says."""
    connect()
    started = start(python, Path(folder))
    try:
        with subprocess.Popen(
            inside(HOSTS[0], *check), env=dict(os.environ), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                sys.stderr.write(line)
                if " queries " in line:
                    sh(f"ip link set {HOSTS[-1]} down")
        return process.returncode
    finally:
        for child in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
        for child in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
