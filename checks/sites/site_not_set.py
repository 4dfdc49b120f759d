"""SITE101: a path of this cluster still has the value of an example."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.sites._sites_examples import MODEL, sites
from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check


def _examples() -> list[Example]:
    return [
        Example("a path", (sites(MODEL),)),
        Example("an address", (sites(SitePlace(name="data", path="s3://bucket/data", elsewhere=True)),)),
        Example(
            "left as it was",
            (sites(SitePlace(name="model", path="/path/to/model", set=False)),),
            "model is not set yet: '/path/to/model' is a placeholder",
        ),
        Example(
            "empty", (sites(SitePlace(name="data", path="", set=False)),), "data is not set yet: it is empty"
        ),
        Example(
            "an unset variable",
            (sites(SitePlace(name="data", path="$SCRATCH/data", set=False)),),
            "$SCRATCH/data needs a variable",
        ),
    ]


@check("SITE101", phase="shell", examples=_examples)
def site_not_set(places: SitePlaces) -> Iterator[Finding]:
    """A path of this cluster is not set yet.

    ## Why it matters

    Each cluster keeps models, data and results elsewhere. A path that still has the value of the example file
    causes an error only when the job opens it, hours later for a results folder.

    ## How to fix

    Write this cluster's path into the named file, or remove the line if the job does not need this path.
    """
    for place in places.places:
        if not place.set:
            yield Finding(
                f"{place.name} is not set yet: {_why(place.path)}",
                Evidence(place.path, "a path of this cluster", places.named_in),
                Location(places.named_in),
                subject=Subject("site", place.name),
                remedy=f"set {place.name} in {places.named_in}",
            )


def _why(path: str) -> str:
    if not path.strip():
        return "it is empty"
    return f"{path} needs a variable that is not set" if "$" in path else f"'{path}' is a placeholder"
