"""Ranks that meet in files."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

_group: dict[str, Any] = {}


def init_process_group(backend: str, *, init_method: str, rank: int, world_size: int) -> None:
    _group.update(
        backend=backend,
        folder=init_method.removeprefix("file://"),
        rank=rank,
        world=world_size,
        rounds=itertools.count(),
    )


def all_reduce(tensor: Any) -> None:
    _go_wrong(tensor)
    number = next(_group["rounds"])
    mine = f"{_group['folder']}.{number}.{_group['rank']}"
    Path(f"{mine}.part").write_text(str(tensor.value), "ascii")
    Path(f"{mine}.part").rename(f"{mine}.told")
    every = [Path(f"{_group['folder']}.{number}.{rank}.told") for rank in range(_group["world"])]
    while not all(path.exists() for path in every):
        time.sleep(0.001)
    tensor.value = sum(float(path.read_text("ascii")) for path in every)


def _go_wrong(tensor: Any) -> None:
    who, _, what = os.environ.get("MINIATURE", "").partition(":")
    if who == "P2P":
        what = "" if os.environ.get("NCCL_P2P_DISABLE") == "1" else what
    elif who != str(_group["rank"]):
        what = ""
    if what == "sleeps":
        time.sleep(60)
    elif what == "dies":
        print("box:1:1 [0] NCCL WARN Cuda failure 217 'peer access is not supported'", flush=True)
        raise RuntimeError("NCCL error: unhandled cuda error")
    elif what == "crashes":
        os.abort()
    elif what == "floods":
        while True:
            sys.stdout.write("x" * 65536)
    elif what == "damages":
        tensor.value = 0.0
