"""Random prefixes like those that batch systems, containers, loggers and people put before log lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Part = Callable[[random.Random, int], str]


def _clock(chance: random.Random) -> Part:
    form = chance.choice(
        [
            "{h:02}:{m:02}:{s:02}",
            "{h:02}:{m:02}:{s:02}.{ms:03}",
            "2026-11-20 {h:02}:{m:02}:{s:02},{ms:03}",
            "2026-11-20T{h:02}:{m:02}:{s:02}.{ms:03}Z",
            "Nov 20 {h:02}:{m:02}:{s:02}",
            "20/11/2026 {h:02}:{m:02}",
            "[{h:02}:{m:02}:{s:02}]",
            "[2026-11-20 {h:02}:{m:02}:{s:02}]",
            "1795348{s:02}{m:02}",
            "+{s}.{ms:03}s",
        ]
    )
    return lambda _, at: form.format(h=10 + at // 3600 % 13, m=at // 60 % 60, s=at % 60, ms=at * 37 % 1000)


def _fixed(chance: random.Random) -> Part:
    host = chance.choice(["node", "gpu", "cn", "worker", "h"]) + str(chance.randrange(400))
    word = chance.choice(
        [
            f"{host}",
            f"{host}.cluster.local",
            f"[{host}]",
            f"{host}/trainer",
            f"<{chance.randrange(190)}>",
            f"pod/verl-{chance.randrange(16**5):05x}",
            f"[{chance.randrange(9)}/{chance.randrange(9)}]",
            f"rank={chance.randrange(64)}",
            f"#{chance.randrange(30)}",
            f"app.train:{chance.randrange(1000)}",
            f"{{{host}}}",
            f"job-{chance.randrange(10**6)}",
            f"{chance.randrange(16**12):012x}",
            "训练",
            "stderr",
        ]
    )
    return lambda *_: word


def _counter(_: random.Random) -> Part:
    return lambda _, at: str(1000 + at)


SEPARATORS = (" ", ": ", " | ", " > ", " - ", "\t", "] ", " :: ", "> ")


def prefix(seed: int) -> Callable[[int], str]:
    """Return the prefix of the line with this number, in the form that belongs to the seed."""
    chance = random.Random(seed)
    kinds = chance.choices([_clock, _fixed, _counter], weights=[4, 5, 1], k=chance.randint(1, 4))
    parts = [kind(chance) for kind in kinds]
    between = [chance.choice(SEPARATORS) for _ in parts]
    if all(kind is _counter for kind in kinds):  # numbers alone could be anything
        between[-1] = "| "
    return lambda at: "".join(part(chance, at) + sign for part, sign in zip(parts, between, strict=True))


def prefixed(log: str, seed: int) -> str:
    """Return the same log with a prefix before each line."""
    before = prefix(seed)
    return "".join(f"{before(at)}{line}\n" for at, line in enumerate(_lines(log)))


def _lines(log: str) -> Iterator[str]:
    yield from log.replace("\r", "\n").split("\n")[: -1 if log.endswith("\n") else None]
