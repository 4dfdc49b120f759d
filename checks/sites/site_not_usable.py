"""SITE103: a path of this cluster cannot be read, or not be written where the job writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.sites._sites_examples import MODEL, RESULTS, missing, sites
from verl_doctor.toolkit.collectors.model.job_files import JobFile
from verl_doctor.toolkit.collectors.model.sites import SitePlaces
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_CLOSED = replace(MODEL, content=JobFile(path="/models/qwen", what="site", state="unreadable"))
_READ_ONLY = "/scratch/me is mounted read-only"


def _examples() -> list[Example]:
    return [
        Example("a model and a folder for results", (sites(MODEL, RESULTS),)),
        Example("a model that may only be read", (sites(replace(MODEL, not_writable="")),)),
        Example("another user's model", (sites(_CLOSED),), "model: user cannot read /models/qwen"),
        Example(
            "results on a read-only mount", (sites(replace(RESULTS, not_writable=_READ_ONLY)),), _READ_ONLY
        ),
        Example(
            "a results folder that cannot be created",
            (sites(missing(RESULTS, not_writable=_READ_ONLY)),),
            _READ_ONLY,
        ),
    ]


@check("SITE103", phase="workers", examples=_examples)
def site_not_usable(places: SitePlaces) -> Iterator[Finding]:
    """A path of this cluster is not readable, or not writable where the job writes.

    ## Why it matters

    Results are first written after the first save interval, perhaps hours into the run: without write access,
    all of them are lost.

    ## How to fix

    Ask the owner for access, or name a folder of your own. A path counts as written to if its name suggests
    it (`output`, `checkpoint`, `log`, `scratch`...), or as `writes = true` or `false` next to it states.
    """
    for place in places.places:
        why = f"user cannot read {place.path}" if place.state == "unreadable" else place.not_writable
        if why:
            yield Finding(
                f"{place.name}: {why}",
                Evidence(
                    why, "a folder in which files can be made" if place.writes else "readable", place.path
                ),
                Location(places.named_in),
                subject=Subject("site", place.name),
                remedy=f"ask for access, or name another path in {places.named_in}",
            )
