"""Does `verl-doctor clean` ever remove what somebody needs, or leave what nobody does?

    python tests/bench/bench_clean.py [--trials 1000] [--seed 20261121]

Each trial makes a small machine with what jobs leave: sessions, spill folders, segments, sockets, address files. Of some the
owners live: a process that has a file open, maps it, listens, works there, is named in a folder's name, or names the folder.
Some hold what must not be lost: a checkpoint, a link to precious files, a file of a longer life through a hard link. While the clean-up runs, a
process comes to some of what nobody needed, at a random moment. Then everything is compared with what was there:

* lost: something of the living, or precious, is gone or changed;
* left: something of the dead is still there, in whole or in part, though nobody had come to it;
* torn: a folder to which somebody came in time is not whole.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "tests")]

from support.clean_trials import Totals, keepers, trial  # noqa: E402
from support.left_behind import two_minutes_later  # noqa: E402


def main() -> int:
    """Run the trials and print what came of them. The exit code is 1 when anything was lost, left or torn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261121)
    given = parser.parse_args()
    totals: Totals = Counter()
    started = time.monotonic()
    with keepers(8) as team, two_minutes_later():
        for number in range(given.trials):
            dice = random.Random(f"{given.seed}-{number}")
            with tempfile.TemporaryDirectory(prefix="vd-clean-") as folder:
                for fault in trial(Path(folder), dice, team, totals):
                    print(f"trial {number}: {fault}")
                    totals["faults"] += 1
    said = ", ".join(f"{count} {what}" for what, count in sorted(totals.items()))
    print(f"{given.trials} trials in {time.monotonic() - started:.0f} s: {said}; {totals['faults']} faults")
    return int(totals["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
