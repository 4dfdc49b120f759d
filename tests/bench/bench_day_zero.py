"""What the doctor foretells of releases that it has never seen: the newest of verl and of vLLM are taken out of all that is shipped.

    python tests/bench/bench_day_zero.py TREES [--hydra PYTHON] [--python ENVIRONMENT/bin/python] [--newest 2] [--verl 0.9.1,...]

TREES holds unpacked wheels, as for `bench_pairs.py`. With --hydra, the history of verl's keys and the list of their renames lose what the
newest releases brought. Then each key that these added or removed is set on the command line of each: the doctor composes it,
and so does Hydra.

With --python, the newest releases of vLLM in TREES are taken out of the list of vLLM's variables, and the doctor's cache is empty. Each is paired with
releases of verl, and compared with really importing them, by the questions of `bench_pairs.py`. Each variable and each attention backend
of these releases and of the one before them is looked up in each, as the rules do, and in the really imported module.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_pairs import Pair, Score, _tree, judged
from bench_scripts import _by_hydra
from packaging.version import Version
from truth import Oracle

from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.checks.variables import _variable_history
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.launch.launch import Command, Word
from verl_doctor.toolkit.collectors.variables.variable_search import Places, Search
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_backends import read_backends
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra import verl_keys
from verl_doctor.toolkit.sources.python.environment import TABLE
from verl_doctor.toolkit.testing import run_check

_PROGRAM = "verl.trainer.main_ppo"


def main() -> int:
    parser = argparse.ArgumentParser(description="releases that nothing shipped tells of")
    parser.add_argument("trees", type=Path)
    parser.add_argument("--hydra", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--newest", type=int, default=2)
    parser.add_argument("--verl", default="0.6.1,0.7.1,0.8.0,0.9.0,0.9.1")
    options = parser.parse_args()
    wrong = of_verl(options) if options.hydra else 0
    return wrong | of_vllm(options) if options.python else wrong


def of_verl(options: argparse.Namespace) -> int:
    """Compare all keys with Hydra."""
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


def of_vllm(options: argparse.Namespace) -> int:
    """Compare the pairs, the variables and the backends with importing."""
    trees: Path = options.trees.absolute()
    releases = sorted(
        {folder.name.rpartition("-")[2] for folder in trees.glob("vllm*-*") if (folder / "vllm").is_dir()},
        key=Version,
    )
    newest, known = releases[-options.newest :], releases[-options.newest - 1]
    vllms = [_tree(trees, "vllm", release) for release in (known, *newest)]
    _variable_history._LAST_READ = {
        release: names
        for release, names in _variable_history._LAST_READ.items()
        if Version(release) < Version(known)
    }
    names = {what: sorted(set().union(*(read(tree) for tree in vllms))) for what, read in _LISTED.items()}
    counts: Counter[str] = Counter()
    total = Score()
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_CACHE_HOME"] = home
        oracle = Oracle(options.python.absolute(), Path(home))
        for vllm in vllms[1:]:
            for release in options.verl.split(","):
                pair = Pair(_tree(trees, "verl", release), vllm)
                result = judged(pair, oracle, [], Path(home))
                scores = (result.load, result.names, result.members)
                print(f"| {pair.title} | {' | '.join(score.text for score in scores)} |", flush=True)
                print(*(f"  {note}" for score in scores for note in score.notes), *result.ended, sep="\n")
                total = sum(scores, total)
            for what, asked in names.items():
                here = set(_LISTED[what](vllm))
                module, holder = _REAL[what]
                real = oracle.conditions({(module, f"{name!r} in {holder}") for name in asked}, set())
                for name in asked:
                    there = real[module, f"{name!r} in {holder}"]
                    counts[what] += 1
                    counts[f"{what} that are gone"] += there is False
                    counts[f"{what} that are judged wrongly"] += there is not None and there != (name in here)
                    counts[f"{what} that cannot be looked up"] += there is None
            dead = Search(
                names["variables"], Places({"vllm": Path(vllm.folder)}), sources_only=True
            ).traces.items()
            for name, trace in dead:
                gone = name not in _LISTED["variables"](vllm)
                said = not trace.readers and not trace.unclear and not trace.entries
                counts["variables reported to be gone"] += gone and said
                counts["variables reported to be gone that are there"] += said and not gone
                if gone and not said:
                    print(f"{vllm.version} {name}: not in the table, but {trace.readers or trace.unclear}")
        oracle.close()
    print(f"{', '.join(newest)} taken out: {total.text}, recall | precision: {total.rates}")
    print(", ".join(f"{what} {count}" for what, count in counts.items()))
    return 1 if total.wrong or total.missed or counts["variables reported to be gone that are there"] else 0


def _variables(tree: Tree) -> Iterator[str]:
    """The names in vLLM's table of variables."""
    source = ast.parse(Path(tree.folder, "envs.py").read_bytes())
    for node in ast.walk(source):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)) if name == TABLE:
                yield from (key.value for key in keys if isinstance(key, ast.Constant))


def _backends(tree: Tree) -> Iterator[str]:
    found = read_backends(tree, names=())
    assert isinstance(found, AttentionBackends), found
    yield from (backend.name for backend in found.backends)


_LISTED: dict[str, Callable[[Tree], Iterator[str]]] = {"variables": _variables, "backends": _backends}
_REAL = {
    "variables": ("vllm.envs", TABLE),
    "backends": ("vllm.v1.attention.backends.registry", "AttentionBackendEnum.__members__"),
}


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
