"""Does `verl-doctor clean` ever end or remove what lives, whoever it belongs to, and does it still find what is dead?

    python tests/bench/bench_living.py [--rounds 100] [--seed 1]    # as root

In each round a random part of all kinds of living process, or of holders of files, is planted beside some that are dead, in namespaces
of its own; then the doctor cleans up. `support/living_processes.py` and `support/living_holders.py` have the kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS)]

from support import engines  # noqa: E402

OWN = ["unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net", "--kill-child"]
PARTS = (
    ("living_processes.py", "0"),
    ("living_processes.py", "65534"),
    ("living_holders.py", "root"),
    ("living_holders.py", "user"),
    ("living_holders.py", "alone"),
)


def main() -> int:
    """Run so many rounds of each part and print what came of them. The exit code is 1 when anything was lost or left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = 0
    for script, users in PARTS:
        command = [
            sys.executable,
            str(TESTS / "support" / script),
            str(given.seed),
            str(given.rounds),
            users,
            "-",
        ]
        done = subprocess.run(
            [*OWN, *command, engines.ROOM],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        outcome = json.loads(done.stdout)
        faults += len(outcome["wrong"])
        count = outcome["count"]
        print(
            f"{script} as {users}: {outcome['kinds']} kinds, {outcome['rounds']} rounds in {outcome['seconds']} s:"
            f" {count.get('living', 0)} living, {count.get('dead', 0)} dead, {len(outcome['wrong'])} lost or left"
        )
        print(*outcome["wrong"], sep="\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
