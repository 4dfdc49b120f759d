"""Tries a collective on all visible GPUs. Runs under the target's interpreter, with its torch.

It is passed as text, so it needs the standard library and torch only. Called with a token, the backend
("nccl", or "gloo" without GPUs), the number of ranks, and a limit in seconds. Each rank is a separate
process, forked before torch is imported. A rank that hangs, crashes or floods its output affects only itself.
What it was doing and how it ended is part of the result, which is one JSON document.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

LARGE = 16 * 1024 * 1024  # bytes of the tensor whose transfer is timed
ROUNDS = 10
LAST_WORDS = 1.0  # seconds
KEPT = 256 * 1024  # bytes of each rank's output that are kept, from the beginning
STORE = "rendezvous"


def take_part(backend: str, rank: int, world: int, limit: float, report: Callable[..., None]) -> None:
    """Run one rank: a small all-reduce, a large one, and the large one again, timed."""
    report(stage="importing torch")
    import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    report(stage="opening the GPU", torch=torch.__version__)
    gpu = backend == "nccl"
    if gpu:
        torch.cuda.set_device(rank)
        report(nccl=".".join(map(str, torch.cuda.nccl.version())))
    device = f"cuda:{rank}" if gpu else "cpu"
    report(stage="meeting the other ranks")
    dist.init_process_group(
        backend,
        init_method=f"file://{os.path.abspath(STORE)}",
        rank=rank,
        world_size=world,
    )

    def reduced(length: int) -> tuple[Any, float]:
        tensor = torch.full((length,), float(rank + 1), device=device)
        started = time.monotonic()
        dist.all_reduce(tensor)
        total = world * (world + 1) / 2
        if tensor.min().item() != total or tensor.max().item() != total:  # waits for the GPU
            report(wrong=True)
        return tensor, time.monotonic() - started

    report(stage="the first all-reduce")
    _, first = reduced(1)
    report(stage="a large all-reduce", first=first)
    tensor, _ = reduced(LARGE // 4)
    report(stage="the timed all-reduces")
    started = time.monotonic()
    for _ in range(ROUNDS):
        dist.all_reduce(tensor)
    tensor.min().item()
    seconds = (time.monotonic() - started) / ROUNDS
    # The "bus bandwidth" of https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    report(stage="done", bandwidth=LARGE / seconds * 2 * (world - 1) / world / 1e9)
    time.sleep(limit)  # other ranks may still read this one's memory, so the parent ends it


class Rank:
    """A rank in its parent: its reports, its output, how it ended."""

    def __init__(self, work: Callable[[Callable[..., None]], None]) -> None:
        reports, self._reports = os.pipe()
        output, self._output = os.pipe()
        self.reported: dict[str, Any] = {}
        self.printed = b""
        self.ended: int | None = None
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reports)
            os.close(output)
            self._be_it(work)
        os.close(self._reports)
        os.close(self._output)
        self.sources = {reports: self._reported, output: self._has_printed}

    def _be_it(self, work: Callable[[Callable[..., None]], None]) -> None:
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        code = 1
        try:
            work(self._report)
            code = 0
        except BaseException:  # noqa: BLE001 - its parent reports it, whatever it is
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(code)

    def _report(self, **fields: Any) -> None:
        os.write(self._reports, json.dumps(fields).encode() + b"\n")

    def _reported(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.reported.update(json.loads(line))

    def _has_printed(self, data: bytes) -> None:
        self.printed += data[: KEPT - len(self.printed)]

    @property
    def finished(self) -> bool:
        """Whether it has ended and all its output is read."""
        return self.reported.get("stage") == "done" or self.ended is not None

    def look(self) -> None:
        """Check whether it has ended: with an exit code, or by a signal as a negative number."""
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Kill it if it has not ended."""
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)


def receive(selector: selectors.BaseSelector, seconds: float) -> None:
    """Read what is available, after waiting at most this long."""
    for key, _ in selector.select(timeout=seconds):
        data = os.read(key.fd, 65536)
        if data:
            key.data(data)
        else:
            selector.unregister(key.fd)


def attempt(backend: str, world: int, limit: float) -> dict[str, Any]:
    """Run all ranks for at most the limit. If one crashes, the others have a second to report why."""
    started = time.monotonic()
    deadline = started + limit
    ranks = [
        Rank(lambda report, rank=rank: take_part(backend, rank, world, limit, report))  # type: ignore[misc]
        for rank in range(world)
    ]
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            for descriptor, take in rank.sources.items():
                selector.register(descriptor, selectors.EVENT_READ, take)
        while time.monotonic() < deadline and not all(rank.finished for rank in ranks):
            receive(selector, 0.1)
            for rank in ranks:
                rank.look()
            if any(rank.ended is not None for rank in ranks):
                deadline = min(deadline, time.monotonic() + LAST_WORDS)
        for rank in ranks:
            rank.end()
        for _ in range(64):  # their last output, up to a limit
            receive(selector, 0)
    return {
        "seconds": time.monotonic() - started,
        "ranks": [
            {**rank.reported, "ended": rank.ended, "printed": rank.printed.decode("utf-8", "replace")}
            for rank in ranks
        ],
    }


if __name__ == "__main__":
    token, backend, world, limit = sys.argv[1:]
    print(f"\n{token}{json.dumps(attempt(backend, int(world), float(limit)))}", flush=True)
