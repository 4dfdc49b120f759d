"""Results that are expensive to compute, kept between runs in the doctor's own cache folder.

A result is valid for exactly the files that it was computed from, and for this version of the doctor's own
code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import platformdirs

from verl_doctor.toolkit.collectors.installed.listings import Listings, line_of, status_of
from verl_doctor.toolkit.facts import F, Unknown
from verl_doctor.toolkit.system import cache
from verl_doctor.toolkit.system.own_files import TOOLKIT
from verl_doctor.toolkit.system.restore import restored

_KEPT = 64  # results of one kind, the newest
_LARGEST = 16_000_000  # bytes


def remembered(
    fact: type[F],
    about: object,
    places: Iterable[Path],
    compute: Callable[[], F | Unknown],
    listings: Listings | None = None,
) -> F | Unknown:
    """Return the result for these files and Python sources below these folders, recomputed if they change.

    `about` is whatever else the result depends on; its `repr` counts. `listings` are what this run has listed
    before. An `Unknown` is not kept.
    """
    key = key_of(about, places, listings)
    if (known := recall(fact, key)) is not None:
        return known
    computed = compute()
    if isinstance(computed, fact):
        keep(computed, key)
    return computed


def key_of(about: object, places: Iterable[Path], listings: Listings | None = None) -> str:
    """Return a digest of everything that a result depends on, including the doctor's own code."""
    return hashlib.sha256(
        f"{fingerprint(places, listings)}{_own_code()} {about!r}".encode("utf-8", "surrogateescape")
    ).hexdigest()


@functools.cache
def _own_code() -> str:
    """Return the digest of the loaded code, which is constant for the life of this process."""
    return fingerprint([TOOLKIT])


def recall(fact: type[F], key: str, seconds: float = math.inf) -> F | None:
    """Return the result that was kept under this key, unless it is older than so many seconds."""
    kept = cache.read(_file(fact, key), _LARGEST, seconds)
    with contextlib.suppress(Exception):  # whatever is wrong with it, the result can be computed again
        return restored(fact, kept) if kept is not None else None
    return None


def keep(fact: object, key: str, most: int = _KEPT) -> None:
    """Keep a result, and of its kind the `most` newest."""
    file = _file(type(fact), key)
    cache.write(file, asdict(cast("Any", fact)))
    cache.keep_youngest(file.parent, most)


def _file(fact: type, key: str) -> Path:
    return platformdirs.user_cache_path("verl-doctor") / fact.__name__ / f"{key}.json"


def fingerprint(places: Iterable[Path], listings: Listings | None = None) -> str:
    """Return a digest (name, size, inode, times) of these files and Python sources below these folders.

    For compiled files only the names count. A tree's RECORD lists what was installed, not what was edited
    since; a stat of each of 5,000 files takes 20 ms, once for all calls with the same `listings`.
    """
    known = Listings() if listings is None else listings
    digest = hashlib.sha256()
    for place in places:
        if os.path.isdir(place):
            digest.update(known.digest_below(str(place)))
        else:
            digest.update(line_of(str(place), status_of(place)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
