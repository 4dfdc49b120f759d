"""Small edits of what verl takes from vLLM: what the doctor says of each, beside what importing and starting really does.

    python tests/bench/bench_mutations.py [--count 400] [--seed 1] [VERL]

VERL is the folder of a verl; without one a list of imports that released ones make is used. For each edit a tiny verl
takes one of these names, in one of the ways in which forks take names, from a tiny vLLM that has all of them but what
the edit takes away. Python then imports the server and starts it. The doctor reads the same two trees: an error of its
counts against what Python raised. Exit code 1 for a false error, or for less than nine tenths of the breaks.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree

VERSION = "0.12.0"
_FOUND = 0.9  # of the breaks, at least
NAMES = (
    ("vllm.engine.arg_utils", "AsyncEngineArgs"), ("vllm.entrypoints.openai.api_server", "build_app"),
    ("vllm.entrypoints.openai.api_server", "init_app_state"), ("vllm.lora.request", "LoRARequest"),
    ("vllm.usage.usage_lib", "UsageContext"), ("vllm.utils", "FlexibleArgumentParser"),
    ("vllm.v1.engine.async_llm", "AsyncLLM"), ("vllm.v1.executor.abstract", "Executor"),
)  # fmt: skip
_SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"

# What becomes of the name in vLLM.
LIBRARY = ("as it is", "deleted", "renamed", "module renamed", "signature")

# How the server takes it: code of the module, and code of the method that starts it. {m} is the module, {n} the name.
_CALL = "{n}(1)"
_OLD, _NEW = (
    "import vllm\nif vllm.__version__ {old}:\n    {t}",
    "import vllm\nif vllm.__version__ {new}:\n    {t}",
)
_TAKE = "from {m} import {n}"
_PARSED = "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) {test}:\n    {t}"
WAYS = {
    "plain": (_TAKE, _CALL),
    "alias": ("import {m} as module", "module.{n}(1)"),
    "whole path": ("import {m}", "{m}.{n}(1)"),
    "lazy": ("", _TAKE + "\n" + _CALL),
    "lazy helper": ("def take():\n    " + _TAKE + "\n    return {n}", "take()(1)"),
    "subclass": (_TAKE + "\nclass Mine({n} if isinstance({n}, type) else object): ...", "Mine"),
    "swallowed": ("try:\n    " + _TAKE + "\nexcept ImportError:\n    pass", "pass"),
    "swallowed and called": ("try:\n    " + _TAKE + "\nexcept ImportError:\n    {n} = None", _CALL),
    "swallowed and asked": ("try:\n    " + _TAKE + "\nexcept ImportError:\n    {n} = None", "if {n} is not None:\n    " + _CALL),
    "flag": ("try:\n    " + _TAKE + "\n    HAS = True\nexcept ImportError:\n    HAS = False", "if HAS:\n    " + _CALL),
    "wrong except": ("try:\n    " + _TAKE + "\nexcept ModuleNotFoundError:\n    {n} = repr", _CALL),
    "raised again": ("try:\n    " + _TAKE + "\nexcept ImportError as error:\n    raise RuntimeError('no') from error", _CALL),
    "fallback": ("try:\n    " + _TAKE + "\nexcept ImportError:\n    {n} = repr", _CALL),
    "suppressed": ("from contextlib import suppress\nwith suppress(ImportError):\n    " + _TAKE, "pass"),
    "text version, new": ("import vllm\nif vllm.__version__ >= '0.11.0':\n    " + _TAKE, "pass"),
    "text version, old": ("import vllm\nif vllm.__version__ < '0.11.0':\n    " + _TAKE, "pass"),
    "text version, wrong as text": ("import vllm\nif vllm.__version__ >= '0.9.0':\n    " + _TAKE, "pass"),
    "tuple version, new": (
        "import vllm\nif tuple(map(int, vllm.__version__.split('.')[:2])) >= (0, 11):\n    " + _TAKE, "pass"
    ),
    "tuple version, old": (
        "import vllm\nif tuple(int(p) for p in vllm.__version__.split('.')[:2]) < (0, 11):\n    " + _TAKE, "pass"
    ),
    "own helper, new": ("from verl.utils.compat import at_least\nif at_least('0.11'):\n    " + _TAKE, "pass"),
    "own helper, old": ("from verl.utils.compat import at_least\nif not at_least('0.11'):\n    " + _TAKE, "pass"),
    "flag of another module": ("from verl.utils.compat import NEW\nif NEW:\n    " + _TAKE, "pass"),
    "hasattr": ("import {m} as module", "if hasattr(module, '{n}'):\n    module.{n}(1)"),
    "getattr": ("import {m} as module", "getattr(module, '{n}')(1)"),
    "getattr with a default": ("import {m} as module", "getattr(module, '{n}', repr)(1)"),
    "__import__": ("module = __import__('{m}', fromlist=['{n}'])", "module.{n}(1)"),
    "import_module": ("import importlib\nmodule = importlib.import_module('{m}')", "module.{n}(1)"),
    "constructed": ("import importlib\nTOP = 'vllm'\nmodule = importlib.import_module(f'{{TOP}}.{rest}')", "module.{n}(1)"),
    "by verl's own shim": ("from verl.utils.shim import {n}", _CALL),
    "variable, on": ("import os\nif os.getenv('VERL_NEW_ENGINE', '1') == '1':\n    " + _TAKE, "pass"),
    "variable, off": ("import os\nif os.getenv('VERL_NEW_ENGINE', '0') == '1':\n    " + _TAKE, "pass"),
    "dead flag": ("USE = False\nif USE:\n    " + _TAKE, "pass"),
    "function of verl renamed": ("from verl.utils.compat import was_here", "pass"),
}  # fmt: skip
_COMPAT = """
from packaging import version
import vllm
def at_least(minimum):
    return version.parse(vllm.__version__) >= version.parse(minimum)
NEW = at_least("0.11.0")
"""
_SHIM = "try:\n    from {m} import {n}\nexcept ImportError:\n    pass\n"
_TRY = """
import asyncio, json, sys
for folder in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("verl", "vllm")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    sys.path_importer_cache.clear()
    try:
        from verl.workers.rollout.vllm_rollout.vllm_async_server import Server
        Server().launch()
        print(json.dumps(""))
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
    sys.path.remove(folder)
"""


@dataclass(frozen=True)
class Mutation:
    """One edit: a name of vLLM, what becomes of it there, and how verl takes it."""

    module: str
    name: str
    library: str
    way: str

    def write(self, folder: Path) -> None:
        """Write both trees."""
        words = {"m": self.module, "n": self.name, "rest": self.module.partition(".")[2]}
        top, start = (text.format(**words) for text in WAYS[self.way])
        server = f"{top}\nclass Server:\n    def launch(self):\n{indent(start, ' ' * 8)}\n"
        _put(folder / "verl" / _SERVER, server)
        _put(folder / "verl/utils/compat.py", _COMPAT)
        _put(folder / "verl/utils/shim.py", _SHIM.format(**words))
        module = f"{self.module}_moved" if self.library == "module renamed" else self.module
        _put(folder / "vllm/__init__.py", f"__version__ = {VERSION!r}\n")
        _put(folder / (module.replace(".", "/") + ".py"), self._definitions())
        for top_folder in (folder / "verl", folder / "vllm"):
            for below in [top_folder, *(path for path in top_folder.rglob("*") if path.is_dir())]:
                (below / "__init__.py").touch()

    def _definitions(self) -> str:
        name = f"{self.name}New" if self.library == "renamed" else self.name
        takes = "first, second" if self.library == "signature" else "first"
        if self.library == "deleted":
            return "other = 1\n"
        if self.name[0].isupper():
            return f"class {name}:\n    def __init__(self, {takes}): ...\n"
        return f"def {name}({takes}): ...\n"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def mutations(names: Iterable[tuple[str, str]], count: int, seed: int) -> list[Mutation]:
    """Different edits, chosen at random, each way of taking a name about equally often."""
    chance = random.Random(seed)
    every = [Mutation(*name, library, way) for name, library, way in itertools.product(names, LIBRARY, WAYS)]
    chance.shuffle(every)
    return every[:count]


def really(folders: Iterable[Path]) -> list[str]:
    """What Python raises for each pair of trees, "" where it starts."""
    command = [sys.executable, "-B", "-c", _TRY, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def reported(folder: Path) -> str:
    """What the doctor calls an error on the path of the server, "" for nothing."""
    pair = (
        Tree(str(folder / "verl"), "verl", "0.6.1", "--verl"),
        Tree(str(folder / "vllm"), "vllm", VERSION, "--vllm"),
    )
    found = read_trees(VllmUses, *pair, "", Surroundings(settings=Settings()))
    if not isinstance(found, VllmUses):
        return "not read"
    errors = [use.name for use in found.uses if use.breaks and use.paths and not use.when]
    return "; ".join(
        [*errors, *(file.reason for file in found.unread if file.paths and file.kind == "missing")]
    )


def compared(
    names: Iterable[tuple[str, str]], count: int, seed: int, home: Path
) -> Iterator[tuple[Mutation, str, str]]:
    """For each edit what Python raises and what the doctor reports."""
    chosen = mutations(names, count, seed)
    folders = [home / str(place) for place in range(len(chosen))]
    for mutation, folder in zip(chosen, folders, strict=True):
        mutation.write(folder)
    for mutation, folder, raised in zip(chosen, folders, really(folders), strict=True):
        yield mutation, raised, reported(folder)


def names_in(verl: Path) -> list[tuple[str, str]]:
    """What a verl imports from modules of vLLM in its rollout."""
    found: set[tuple[str, str]] = set()
    for file in verl.joinpath("workers/rollout").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm."):
                found |= {(node.module or "", alias.name) for alias in node.names if alias.name != "*"}
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description="edits of what verl takes from vLLM, judged and tried")
    parser.add_argument("verl", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = names_in(options.verl) if options.verl else NAMES
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        for mutation, raised, found in compared(names, options.count, options.seed, Path(home)):
            kind = "found" if raised and found else "missed" if raised else "false" if found else "silent"
            counts[kind] += 1
            if kind in {"missed", "false"}:
                print(f"{kind}: {mutation.way}, {mutation.library}: {raised or found}")
    breaks = counts["found"] + counts["missed"]
    print(
        f"{sum(counts.values())} edits: {counts['found']} of {breaks} breaks found, {counts['false']} false errors"
    )
    return 1 if counts["false"] or counts["found"] < _FOUND * breaks else 0


if __name__ == "__main__":
    sys.exit(main())
