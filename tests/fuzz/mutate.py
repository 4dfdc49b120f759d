"""Hostile bytes: valid samples, damaged in the ways in which files are damaged, from a seed that a failure names.

The same samples give the same mutants in every run: a sample holds no time, no path of this run and nothing random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from support.trying import ROUNDS, SEED

_NASTY = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\x1b[31m", "\u202e".encode(), b"\xed\xa0\x80", b"\\", b"'''",
    b"(" * 300, b"[" * 2000, b"9" * 5000, b"-1", b"null", b"true", b"{}", b"[]", b'""', b"../../../etc/passwd", b"/", b",,,,",
    b"# -*- coding: utf-16 -*-\n", b"# coding: nonsense\n", b"1e999", b"NaN", b"lambda: " * 200, b"@", b"\t", b" " * 4000,
)  # fmt: skip


def mutants(samples: Sequence[bytes], count: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield `count` damaged samples in each round, each with the seed from which it can be made again."""
    for number in range(count * ROUNDS):
        own = (seed + 1_009 * SEED) * 1_000_003 + number
        yield own, mutant(samples, own)


def mutant(samples: Sequence[bytes], seed: int) -> bytes:
    """One damaged sample."""
    chance = random.Random(seed)
    text = bytearray(chance.choice(samples))
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        _damage(text, chance, samples)
    return bytes(text)


def _damage(text: bytearray, chance: random.Random, samples: Sequence[bytes]) -> None:
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.choice((0, 1, 5, 40, 400)))
    match chance.randrange(7):
        case 0:
            text[start:end] = b""
        case 1:
            text[start:start] = chance.choice(_NASTY)
        case 2:
            text[start:end] = bytes(chance.randrange(256) for _ in range(end - start))
        case 3:
            del text[start:]
        case 4:
            text[start:start] = text[start:end] * chance.choice((1, 2, 50))
        case 5:
            other = chance.choice(samples)
            text[start:end] = other[chance.randrange(len(other) + 1) :][:200]
        case _:
            for position in range(start, end):
                text[position] ^= 1 << chance.randrange(8)
