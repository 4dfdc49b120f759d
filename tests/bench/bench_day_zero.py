"""What the doctor foretells of releases that it has never seen: the newest of verl are taken out of all that is shipped.

    python tests/bench/bench_day_zero.py TREES --hydra PYTHON [--newest 2]

TREES holds unpacked wheels, `verl-0.9.1/verl`. The history of verl's keys and the list of their renames lose what the newest releases
brought. Then each key that these added or removed is set on the command line of each: the doctor composes it, and so does Hydra.
Rules about pairs of releases read no shipped list; `bench_pairs.py` compares them with really importing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_scripts import _by_hydra
from packaging.version import Version

from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.launch.launch import Command, Word
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra import verl_keys
from verl_doctor.toolkit.testing import run_check

_PROGRAM = "verl.trainer.main_ppo"


def main() -> int:
    parser = argparse.ArgumentParser(description="releases that nothing shipped tells of")
    parser.add_argument("trees", type=Path)
    parser.add_argument("--hydra", type=Path, required=True)
    parser.add_argument("--newest", type=int, default=2)
    options = parser.parse_args()
    table = json.loads(verl_keys._text("verl_keys.json"))
    newest = sorted(table["added"], key=Version)[-options.newest :]
    changed = sorted(
        {key for kind in ("added", "removed") for release in newest for key in table[kind][release]}
    )
    counts: Counter[str] = Counter()
    cases = [
        (release, key, options.trees.absolute() / f"verl-{release}" / "verl")
        for release in newest
        for key in changed
    ]
    with without(newest):
        blind = [told(release, key, tree) for release, key, tree in cases]
    seeing = [told(release, key, tree) for release, key, tree in cases]
    folders = [
        {"folder": str(tree / "trainer/config"), "name": "ppo_trainer", "overrides": [f"{key}=1"]}
        for _, key, tree in cases
    ]
    for (release, key, _), before, after, real in zip(
        cases, blind, seeing, _by_hydra(options.hydra.absolute(), folders), strict=True
    ):
        refused = "refused" in real
        counts["keys"] += 1
        counts["refused by Hydra"] += refused
        counts["foretold"] += refused and bool(before)
        counts["false alarms"] += bool(before) and not refused
        counts["named the same key as with the lists"] += refused and before == after
        if bool(before) != refused or before != after:
            print(
                f"{release} {key}: Hydra {'refuses' if refused else 'composes'}; without the lists: {before}; with them: {after}"
            )
    print(f"{', '.join(newest)} taken out: " + ", ".join(f"{what} {count}" for what, count in counts.items()))
    return 1 if counts["false alarms"] or counts["foretold"] < counts["refused by Hydra"] else 0


@contextmanager
def without(releases: list[str]) -> Iterator[None]:
    """Take releases out of the shipped lists."""
    shipped: Callable[[str], str] = verl_keys._text

    def text(name: str) -> str:
        data: dict[str, Any] = json.loads(shipped(name))
        for kind in ("added", "removed"):
            if kind in data:
                data[kind] = {
                    release: keys for release, keys in data[kind].items() if release not in releases
                }
        if "renamed" in data:
            data["renamed"] = [entry for entry in data["renamed"] if entry["release"] not in releases]
        return json.dumps(data)

    verl_keys._text = text
    for known in (verl_keys.table, verl_keys.renames):
        known.cache_clear()
    yield
    verl_keys._text = shipped
    for known in (verl_keys.table, verl_keys.renames):
        known.cache_clear()


def told(release: str, key: str, tree: Path) -> str:
    """What the rule about unknown keys says of one on the command line, "" for nothing."""
    word = Word(f"{key}=1", "run.sh", 1, f"{key}=1")
    found = composed(Command(_PROGRAM, (word,), "run.sh", 1), tree, Machine(), release)
    if not isinstance(found, Configuration):
        return f"not composed: {found.reason}"
    result = run_check(config_key_unknown, found)
    return "; ".join(finding.message for finding in result.findings)


if __name__ == "__main__":
    sys.exit(main())
