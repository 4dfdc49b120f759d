"""Jobs, killed and alive, with random ties: exactly the leftovers are ended.

Every run is the same; `tests/README.md` has the command for others, and for more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import engines
from support.kept import cannot_run
from support.places import SUPPORT
from support.trying import ROUNDS, SEED

pytestmark = pytest.mark.slow

SCRIPT = SUPPORT / "orphan_trials.py"
OWN = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]


def namespace() -> list[str]:
    """Command prefix for a private process namespace: as root, or as root of a user namespace."""
    for command in (OWN, [*OWN, "--user", "--map-root-user"]):
        if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
            return command
    cannot_run("this user may not make a namespace of processes")
    return []


# The first process of a container may be a shell, or a program of Python's as a job is one.
@pytest.mark.parametrize(
    ("first", "jobs"),
    [(["sh", "-c", '"$0" "$@" & wait $!', sys.executable], 40), ([sys.executable], 20)],
    ids=["sh", "python"],
)
def test_only_leftover_processes_are_ended(first: list[str], jobs: int) -> None:
    own = namespace()
    seed, jobs = SEED + len(first), jobs * ROUNDS
    done = subprocess.run(
        [*own, *first, str(SCRIPT), str(seed), str(jobs), engines.ROOM],
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parent)},
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    result = json.loads(done.stdout)
    assert result["wrong"] == [], result
    count = result["count"]
    assert count["removed"] > jobs / 2
    assert count["needed by somebody"] > jobs / 10
    assert count["numbers given away"] > 0
