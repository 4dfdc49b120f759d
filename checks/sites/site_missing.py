"""SITE102: there is nothing at a path of this cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from verl_doctor.checks.shared.launch_examples import GOOD
from verl_doctor.checks.sites._sites_examples import MODEL, RESULTS, missing, sites
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check


def _examples() -> list[Example]:
    return [
        Example("a path", (sites(MODEL, RESULTS),)),
        Example("not set yet", (sites(SitePlace(name="model", path="/path/to/model", set=False)),)),
        Example(
            "a launch script, whose own paths other rules check",
            (sites(missing(MODEL)), GOOD),
            "model: /models/qwen does not exist on this machine",
        ),
        Example(
            "the old cluster's path",
            (sites(missing(MODEL)),),
            "model: /models/qwen does not exist on this machine",
        ),
        Example(
            "a results folder that can be created",
            (sites(missing(RESULTS)),),
            "/scratch/me does not exist yet",
        ),
    ]


@check("SITE102", phase="workers", examples=_examples)
def site_missing(places: SitePlaces, launch: Launch | Unknown) -> Iterator[Finding]:
    """A path of this cluster does not exist.

    ## Why it matters

    The path was copied from another cluster, or its file system is not mounted on this node. The job fails
    when it opens the path.

    ## How to fix

    Correct the path in the file that the finding names, mount the file system, or copy the files. A results
    folder that can be created is only a warning: create it with `mkdir -p`. With a launch script, it is a
    warning too: LOAD101 and DATA101 check the paths that the script uses.
    """
    of_a_job = isinstance(launch, Launch) and launch.command is not None
    for place in places.places:
        if place.state != "missing":
            continue
        can_be_made = place.writes and not place.not_writable
        yield Finding(
            f"{place.name}: {place.path} does not exist yet"
            if can_be_made
            else f"{place.name}: {place.path} does not exist on this machine",
            Evidence("nothing there", "a file or folder", place.path),
            Location(places.named_in),
            subject=Subject("site", place.name),
            remedy=f"mkdir -p {shlex.quote(place.path)}"
            if can_be_made
            else f"correct {place.name} in {places.named_in}, mount it, or copy it here",
            severity="warning" if can_be_made or of_a_job else "error",
        )
