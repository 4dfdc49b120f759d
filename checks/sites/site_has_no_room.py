"""SITE104: a path of this cluster has less free space than configured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.sites._sites_examples import MODEL, RESULTS, sites
from verl_doctor.toolkit.collectors.model.sites import SitePlaces
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import in_bytes

_LEAST = 2**30  # bytes; a checkpoint of the smallest model is larger


def _examples() -> list[Example]:
    return [
        Example("room enough", (sites(MODEL, replace(RESULTS, wanted_free=200 * 2**30)),)),
        Example("no amount is configured", (sites(RESULTS),)),
        Example(
            "less than configured",
            (sites(replace(RESULTS, wanted_free=2**40)),),
            "900 GiB is free at /scratch/me, 1.0 TiB is required",
        ),
        Example(
            "full",
            (sites(replace(RESULTS, free=2**20)),),
            "1.0 MiB is free at /scratch/me, 1.0 GiB is required",
        ),
    ]


@check("SITE104", phase="checkpoint", examples=_examples)
def site_has_no_room(places: SitePlaces) -> Iterator[Finding]:
    """A path of this cluster has less free space than required.

    ## Why it matters

    A checkpoint that does not fit ends the run when it is saved, and may leave the previous one damaged.

    ## How to fix

    Make room, or name another path. `free = "200 GiB"` beside the path states how much the job needs; without
    it 1 GiB is required where the job writes. Your own quota may be lower than what the file system reports.
    """
    for place in places.places:
        wanted = place.wanted_free or (_LEAST if place.writes else 0)
        if place.free is not None and place.free < wanted:
            found = f"{in_bytes(place.free)} is free"
            yield Finding(
                f"{place.name}: {found} at {place.path}, {in_bytes(wanted)} is required",
                Evidence(found, in_bytes(wanted), place.path),
                Location(places.named_in),
                subject=Subject("site", place.name),
                remedy=f"make room, or name another path in {places.named_in}",
            )
