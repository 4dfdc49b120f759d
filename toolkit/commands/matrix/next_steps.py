"""What an upgrade would break: the findings about a newer release that the present one does not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.commands.matrix.judge import Break, Verdict
from verl_doctor.toolkit.commands.matrix.matrix import Row, Side, Study
from verl_doctor.toolkit.commands.matrix.releases import Release, newest_patches, release_of
from verl_doctor.toolkit.target import UsageError


@dataclass(frozen=True)
class Upgrade:
    """From one vLLM to a newer one, under the same verl.

    `row` is the result for the new pair. `breaks` are findings that newly stop a path, `may_break` those that
    do so under some setting, `mends` those that no longer do. `verls` are newer releases of verl against the
    new vLLM, judged only if something breaks.
    """

    verl: Side
    now: Side
    row: Row
    before: Verdict
    breaks: tuple[Break, ...]
    may_break: tuple[Break, ...]
    mends: tuple[Break, ...]
    verls: tuple[Row, ...] = ()


def upgrade(study: Study, verl: Side, now: Side, project: str, wanted: str) -> Upgrade | None:
    """Compare the installed vLLM with the next minor release, or with `wanted`.

    None if there is no newer release.

    Raises UsageError, NoListing or WheelError.
    """
    found, _ = study.offered(project)
    release = release_of(found, wanted) if wanted else _next(found, now)
    if release is None:
        return None
    new = study.side(release)
    before, after = study.verdict(verl, now), study.verdict(verl, new)
    breaks = _added(before.stopping, after.stopping)
    verls: tuple[Row, ...] = ()
    if breaks:
        newer = [
            other for other in newest_patches(study.offered("verl")[0]) if _is_newer(other, verl.version)
        ]
        verls = tuple(study.rows("verl", new, newer))
    return Upgrade(
        verl=verl,
        now=now,
        row=study.row("vllm", new, verl, after),
        before=before,
        breaks=breaks,
        may_break=_added((*before.optional, *before.stopping), after.optional),
        mends=_added(after.stopping, before.stopping),
        verls=verls,
    )


def _next(found: list[Release], now: Side) -> Release | None:
    """Return the newest patch of the minor release after the present one."""
    try:
        here = Version(now.version)
    except InvalidVersion:
        raise UsageError(
            f"the vLLM in {now.tree.folder} does not state its release; name the one to compare with: "
            "--next 0.13.0"
        ) from None
    later = [release for release in newest_patches(found) if release.minor > (here.major, here.minor)]
    stable = [release for release in later if not release.version.is_prerelease]
    return next(iter(stable or later), None)


def _is_newer(release: Release, version: str) -> bool:
    try:
        return not release.version.is_prerelease and release.version > Version(version)
    except InvalidVersion:
        return True


def _added(old: Iterable[Break], new: Iterable[Break]) -> tuple[Break, ...]:
    """Return the findings of `new` at places where `old` has none.

    A finding without a place is identified by its code.
    """
    known = {place for breakage in old for place in breakage.places or (breakage.code,)}
    return tuple(
        breakage
        for breakage in new
        if any(place not in known for place in breakage.places or (breakage.code,))
    )
