"""`python -m crash.alone TREE PLAN FOLDER [USER]`: trials in a process of their own.

Each of the thousands of forks copies the page tables of the process. With the 250 MB of one that runs tests, they take more
processor time than all the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from crash import trees
from crash.harness import survive


def survives(
    build: Callable[..., object], plan: Callable[..., object], where: Path, user: int | None = None
) -> None:
    """`survive`, in a lean process. The tree and the plan are two of `crash.trees`. Raises AssertionError."""
    words = [build.__name__, plan.__name__, str(where), *([str(user)] if user is not None else [])]
    done = subprocess.run(
        [sys.executable, "-m", "crash.alone", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path[:]))},
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-5000:]
    assert " errors survived" in done.stdout


if __name__ == "__main__":
    tree_name, plan_name, folder, *users = sys.argv[1:]
    user = int(users[0]) if users else None
    print(survive(getattr(trees, tree_name), getattr(trees, plan_name), Path(folder), user))
