"""All kinds of living processes and holders of files, planted together with dead ones: only the dead are removed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from support import engines
from support.kept import cannot_run
from support.places import SUPPORT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who plants them for all users"),
]

OWN = ["unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net", "--kill-child"]
DEAD_PROCESSES = 9


def planted(script: str, user: str, proc: str = "-") -> dict[str, Any]:
    """Result of a script of `tests/support` that plants one of each kind in private namespaces and cleans up."""
    if subprocess.run([*OWN, "true"], capture_output=True, check=False).returncode:
        cannot_run("this user may not make a namespace of processes")
    if (
        proc != "-"
        and subprocess.run([*OWN, "mount", "-t", "proc", "-o", proc, "none", "/proc"], check=False).returncode
    ):
        pytest.skip(f"this kernel has no /proc with {proc}")
    seed = random.SystemRandom().randrange(2**32)
    done = subprocess.run(
        [*OWN, sys.executable, str(SUPPORT / script), str(seed), "0", user, proc, engines.ROOM],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parent)},
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["wrong"] == [], outcome
    assert outcome["kinds"] >= 60
    return outcome


@pytest.mark.parametrize("user", ["0", "65534"], ids=["root", "an ordinary user"])
def test_no_living_process_is_reported(user: str) -> None:
    assert planted("living_processes.py", user)["count"]["dead"] == DEAD_PROCESSES


@pytest.mark.parametrize(
    ("users", "dead"),
    [("root", 5), ("user", 2), ("alone", 5)],
    ids=["root", "an ordinary user beside root", "an ordinary user who sees all processes"],
)
def test_no_living_holder_is_reported(users: str, dead: int) -> None:
    assert planted("living_holders.py", users)["count"]["dead"] == dead


@pytest.mark.parametrize(("user", "proc"), [("0", "subset=pid"), ("65534", "hidepid=2")])
def test_no_living_process_is_reported_where_proc_hides_some(user: str, proc: str) -> None:
    hides = proc == "subset=pid" or user != "0"
    count = planted("living_processes.py", user, proc)["count"]
    assert count["unsure" if hides else "dead"] == DEAD_PROCESSES


@pytest.mark.parametrize(
    ("users", "dead", "proc"),
    [("root", 5, "subset=pid"), ("weak", 2, "-"), ("user", 2, "hidepid=2"), ("user", 2, "subset=pid")],
)
def test_no_living_holder_is_reported_where_proc_hides_some(users: str, dead: int, proc: str) -> None:
    assert planted("living_holders.py", users, proc)["count"]["dead"] == dead
