"""What a vLLM engine logs about its memory, and whether it sleeps.

The lines are logged by `Worker.sleep`, `load_model`, `capture_model` and `ExecutorBase.wake_up` in
vllm/v1/worker/gpu_worker.py, gpu_model_runner.py and vllm/v1/executor/abstract.py; their text is the same
from vLLM 0.8.5 to 0.33. vLLM counts in GiB, and `still in use` is what all processes together hold of the
GPU.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineLog:
    """The last values that one engine logged, in GiB; None if not logged.

    `freed` is what its last sleep released, `in_use` what all processes then held of the GPU. `weights` and
    `cache` are what it held while awake; `graphs` keep their memory while it sleeps.
    """

    asleep: bool = False
    freed: float | None = None
    in_use: float | None = None
    weights: float | None = None
    cache: float | None = None
    graphs: float | None = None


# A vLLM process puts its name and number before each of its lines, and so does Ray, further left.
_PROCESS = re.compile(r"\([^()]*?\bpid=(\d+)[^()]*\)")
_NUMBER = r"(\d+(?:\.\d+)?)"
_WEIGHTS = re.compile(rf"Model loading took {_NUMBER} GiB")
_GRAPHS = re.compile(rf"Graph capturing finished in \d+ secs, took {_NUMBER} GiB")
_CACHE = re.compile(
    rf"(?:Available KV cache memory: |the rest of the memory reserved for KV Cache is ){_NUMBER} ?GiB"
)
_FREED_BY_SLEEP = re.compile(rf"Sleep mode freed {_NUMBER} GiB memory, {_NUMBER} GiB memory is still in use")
_WOKE = re.compile(r"It took \S+ seconds to wake up")


def read_engine_log(lines: Iterable[str], pids: Collection[int]) -> EngineLog:
    """Parse the log of the engine whose processes have these numbers.

    Lines without a process number count as its own.
    """
    weights = graphs = cache = freed = in_use = None
    asleep = False
    for line in _lines_of(lines, pids):
        if match := _FREED_BY_SLEEP.search(line):
            freed, in_use, asleep = float(match[1]), float(match[2]), True
        elif _WOKE.search(line):
            asleep = False
        elif match := _WEIGHTS.search(line):
            weights = float(match[1])
        elif match := _GRAPHS.search(line):
            graphs = float(match[1])
        elif match := _CACHE.search(line):
            cache = float(match[1])
    return EngineLog(asleep, freed, in_use, weights, cache, graphs)


def _lines_of(lines: Iterable[str], pids: Collection[int]) -> Iterator[str]:
    for line in lines:
        if "GiB" not in line and "wake up" not in line:
            continue
        pids_named = _PROCESS.findall(line)
        if not pids_named or int(pids_named[-1]) in pids:
            yield line
