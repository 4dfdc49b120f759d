"""Compare the doctor's list of attention backends with what an installed vLLM really imports.

Usage: python tests/bench/bench_attention.py PYTHON     (the interpreter of an environment with vLLM 0.11.1 or later)

Prints every name on which the two differ, and what the import said. A class that fails because another package or a GPU is
missing is no difference in the name itself; the doctor tells such packages apart (rule ATT107).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends
from verl_doctor.toolkit.collectors.vllm.attention_backends import read_backends

_ASK = """
import importlib, json, os, sys
import vllm
for name in ("vllm.v1.attention.backends.registry", "vllm.attention.backends.registry"):
    try:
        names = importlib.import_module(name).AttentionBackendEnum.__members__
        break
    except ImportError:
        continue
said = {}
for name, member in names.items():
    try:
        member.get_class()
        said[name] = ""
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"[:100]
print("\\n@@" + json.dumps([os.path.dirname(vllm.__file__), vllm.__version__, said, sys.path]))
"""


def main(python: str) -> None:
    """Ask both, and print the differences."""
    started = time.perf_counter()
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
    folder, version, really, path = json.loads(done.stdout.rpartition("@@")[2])
    importing = time.perf_counter() - started
    started = time.perf_counter()
    tree = Tree(str(Path(folder)), "vllm", version, "installed")
    found = read_backends(tree, names=list(really), path=[entry for entry in path if entry])
    reading = time.perf_counter() - started
    assert isinstance(found, AttentionBackends), found
    print(f"vLLM {version}: {len(really)} names; imported in {importing:.1f} s, read in {reading:.2f} s")
    print("same names" if [entry.name for entry in found.backends] == list(really) else "OTHER NAMES")
    for entry in found.backends:
        sound = bool(entry.path) and not entry.problem and not entry.lacks
        if sound is bool(really[entry.name]):
            print(
                f"{entry.name}: the doctor says {'sound' if sound else 'not'}; {really[entry.name] or 'imported'}"
            )


if __name__ == "__main__":
    main(sys.argv[1])
