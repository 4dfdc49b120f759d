"""Reads pieces of files in the ways in which weights are read, against the clock. A script for a process of its own.

A read from a network share that does not answer cannot be broken off: this process may hang, and the doctor goes on. It is
handed over as text, so it needs the standard library only. Called with a token, and a document
{"seconds": limit of each way, "pieces": {way: [[path, start, length], ...]}}. The ways:

* "direct": several pieces at a time past the page cache (O_DIRECT), where the file system can;
* "parallel": several pieces at a time through the page cache, as vLLM's prefetch reads;
* "mapped": page faults of a mapping, with the advice that torch gives for weights (POSIX_FADV_SEQUENTIAL in MapAllocator.cpp),
  one piece after the other, as safetensors reads tensors;
* "again": what that way came to read, from a new mapping.

It answers with [bytes, seconds, fetched] of each way, or null where the file system cannot: `fetched` are the bytes that this process
had the kernel fetch from a disk or a server (read_bytes in proc_pid_io(5)), what was read ahead included; null where it does not count.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BLOCK = 1024 * 1024  # bytes
READERS = 8  # as many as vLLM's prefetch has

Piece = tuple[str, int, int]


def mapped(pieces: Sequence[Piece], until: float) -> int:
    """Copy the pieces out of mappings, and return the number of bytes."""
    done = 0
    for path, start, length in pieces:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        with mmap.mmap(file, start + length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as mapping:
            os.close(file)
            for place in range(start, start + length, BLOCK):
                if time.monotonic() > until:
                    return done
                done += len(mapping[place : min(place + BLOCK, start + length)])
    return done


def side_by_side(flags: int) -> Callable[[Sequence[Piece], float], int]:
    """A way that reads the pieces with several threads."""

    def read(piece: Piece, until: float) -> int:
        path, start, length = piece
        file = os.open(path, os.O_RDONLY | flags)
        buffer = mmap.mmap(-1, BLOCK)  # O_DIRECT wants memory that begins at a page
        done = 0
        try:
            for place in range(start, start + length, BLOCK):
                if time.monotonic() > until:
                    break
                done += os.preadv(file, [memoryview(buffer)[: start + length - place]], place)
        finally:
            os.close(file)
        return done

    def read_all(pieces: Sequence[Piece], until: float) -> int:
        with ThreadPoolExecutor(READERS) as pool:
            return sum(pool.map(lambda piece: read(piece, until), pieces))

    return read_all


WAYS = {"direct": side_by_side(os.O_DIRECT), "parallel": side_by_side(0), "mapped": mapped, "again": mapped}


def fetched() -> int | None:
    """The bytes that were fetched for this process so far."""
    try:
        lines = Path("/proc/self/io").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)


def timed(way: str, pieces: Sequence[Piece], seconds: float) -> tuple[int, float, int | None] | None:
    """Bytes, seconds and what was fetched of one way."""
    before, begun = fetched(), time.monotonic()
    try:
        done = WAYS[way](pieces, begun + seconds)
    except OSError:
        return None
    took, after = time.monotonic() - begun, fetched()
    return done, took, None if before is None or after is None else after - before


def first(pieces: Sequence[Piece], amount: int) -> Iterator[Piece]:
    """So many bytes of the pieces: what lies behind was not read."""
    for path, start, length in pieces:
        if amount > 0:
            yield path, start, min(length, amount)
        amount -= length


def main(token: str, order: str) -> None:
    """Try what the order asks for, in its order."""
    request = json.loads(order)
    answer: dict[str, tuple[int, float, int | None] | None] = {}
    for way, pieces in request["pieces"].items():
        mapped_before = answer.get("mapped")
        there = first(pieces, mapped_before[0] if mapped_before else 0) if way == "again" else pieces
        answer[way] = timed(way, list(there), request["seconds"])
    print(token + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
