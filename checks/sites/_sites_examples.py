"""Examples shared by the rules about a cluster's own paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verl_doctor.toolkit.collectors.model.job_files import JobFile
from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces

MODEL = SitePlace(
    "model", "/models/qwen", shared=True, content=JobFile("/models/qwen", "site", files=12, size=15 * 10**9, mount="nfs4")
)  # fmt: skip
RESULTS = SitePlace(
    "output_dir", "/scratch/me", writes=True, free=900 * 2**30, content=JobFile("/scratch/me", "site", mount="xfs")
)  # fmt: skip


def sites(*places: SitePlace) -> SitePlaces:
    """These paths, named in a file."""
    return SitePlaces(places, "/home/me/verl/verl-doctor.toml")


def missing(place: SitePlace, **other: Any) -> SitePlace:
    """The same path, which does not exist."""
    return replace(place, content=JobFile(place.path, "site", "missing"), **other)
