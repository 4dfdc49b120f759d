"""Times reading pieces of files in the ways in which weights are read. A script for a separate process.

A read from an unresponsive network share cannot be interrupted: this process may hang, and verl-doctor
continues. It is passed as text, so it needs the standard library only. Called with a token, and a document
{"seconds": limit of each way, "pieces": {way: [[path, start, length], ...]}}. The ways:

* "direct": several pieces at a time past the page cache (O_DIRECT), if the file system supports it;
* "parallel": several pieces at a time through the page cache, as vLLM's prefetch reads;
* "mapped": page faults of a mapping, with the advice that torch gives for weights (POSIX_FADV_SEQUENTIAL in
  MapAllocator.cpp), one piece after the other, as safetensors reads tensors;
* "again": what "mapped" managed to read, from a new mapping.

It prints [bytes, seconds, fetched] for each way, or null if the file system does not support it: `fetched`
are the bytes that the kernel fetched for this process from a disk or a server (read_bytes in proc_pid_io(5)),
including read-ahead; null if not counted.
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
READERS = 8  # as many as vLLM's prefetch uses

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
    """Return a way that reads the pieces with several threads."""

    def read(piece: Piece, until: float) -> int:
        path, start, length = piece
        file = os.open(path, os.O_RDONLY | flags)
        buffer = mmap.mmap(-1, BLOCK)  # O_DIRECT needs page-aligned memory
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
    """Return the bytes fetched for this process so far."""
    try:
        lines = Path("/proc/self/io").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)


def timed(way: str, pieces: Sequence[Piece], seconds: float) -> tuple[int, float, int | None] | None:
    """Return bytes, seconds and fetched bytes of one way."""
    before, begun = fetched(), time.monotonic()
    try:
        done = WAYS[way](pieces, begun + seconds)
    except OSError:
        return None
    took, after = time.monotonic() - begun, fetched()
    return done, took, None if before is None or after is None else after - before


def first(pieces: Sequence[Piece], amount: int) -> Iterator[Piece]:
    """Yield the first pieces up to this many bytes; the rest was not read."""
    for path, start, length in pieces:
        if amount > 0:
            yield path, start, min(length, amount)
        amount -= length


def main(token: str, order: str) -> None:
    """Try the requested ways in order."""
    request = json.loads(order)
    answer: dict[str, tuple[int, float, int | None] | None] = {}
    for way, pieces in request["pieces"].items():
        mapped_before = answer.get("mapped")
        pieces_read = first(pieces, mapped_before[0] if mapped_before else 0) if way == "again" else pieces
        answer[way] = timed(way, list(pieces_read), request["seconds"])
    print(token + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
