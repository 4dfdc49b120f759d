"""Examples shared by the rules about a cluster's own paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.model.job_files import JobFile
from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces

MODEL = SitePlace(
    name="model",
    path="/models/qwen",
    shared=True,
    content=JobFile(path="/models/qwen", what="site", files=12, size=15 * 10**9, mount="nfs4"),
)
RESULTS = SitePlace(
    name="output_dir",
    path="/scratch/me",
    writes=True,
    free=900 * 2**30,
    content=JobFile(path="/scratch/me", what="site", mount="xfs"),
)


def sites(*places: SitePlace) -> SitePlaces:
    """These paths, named in a file."""
    return SitePlaces(places=places, named_in="/home/me/verl/verl-doctor.toml")


def missing(place: SitePlace, **other: Any) -> SitePlace:
    """The same path, which does not exist."""
    return replace(place, content=JobFile(path=place.path, what="site", state="missing"), **other)
