"""What an installation must respect besides the metadata.

That is the job's engines, this driver, a running cluster, and broken distributions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES, Distribution, Packages
from verl_doctor.toolkit.collectors.packages.install_request import ENGINES
from verl_doctor.toolkit.collectors.packages.records import Drift, Records
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, meets, parsed
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.text import canonical

# Which extra of verl provides what a setting chooses, as of verl 0.9.1.
_EXTRAS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "megatron": "mcore", True: "gpu"}
_OPENCVS = (
    "opencv-contrib-python-headless",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-python",
)


@dataclass(frozen=True)
class Broken:
    """A distribution whose files must be replaced.

    Its fields are its metadata folders, and the version to install, "" for none.
    """

    name: str
    version: str
    locations: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class InstallNeeds:
    """What an installation must respect.

    `extras` are the extras of verl that the job needs, `engine` is an installed engine that this verl cannot
    use.

    `ray` is the version of the cluster that the job joins, `cuda` the major version of the newest CUDA that
    the driver supports; each is empty if nothing requires it. `left_over` are folders that pip renamed and
    failed to remove: they confuse it.
    """

    extras: tuple[str, ...] = ()
    engine: str = ""
    ray: str = ""
    cuda: str = ""
    broken: tuple[Broken, ...] = ()
    left_over: tuple[str, ...] = ()


@collector(local=True, timeout=60)
def install_needs(
    packages: Packages,
    requirements: Requirements | Unknown,
    engines: ChosenEngines | Unknown,
    uses: VllmUses | Unknown,
    clusters: RayClusters | Unknown,
    gpus: Gpus | Unknown,
    records: Records | Unknown,
    interpreter: Interpreter | Unknown,
) -> InstallNeeds:
    """Gather the needs from known facts."""
    joined = None if isinstance(clusters, Unknown) else clusters.chosen
    closure = () if isinstance(requirements, Unknown) else requirements.closure
    return InstallNeeds(
        extras=tuple(_extras(packages, engines)),
        engine=_unusable_engine(packages, uses),
        ray=joined.ray if joined is not None else "",
        cuda="" if isinstance(gpus, Unknown) else gpus.cuda.partition(".")[0],
        broken=(
            *_twice(packages),
            *_with_files_missing(packages, records),
            *_several_opencvs(packages, closure),
        ),
        left_over=() if isinstance(interpreter, Unknown) else tuple(_left_over(interpreter.site_packages)),
    )


def _extras(packages: Packages, engines: ChosenEngines | Unknown) -> Iterator[str]:
    """Yield the extras of what the job chooses; if that is unknown, of the installed engines."""
    verl = packages.get("verl")
    offered = {canonical(extra): extra for extra in verl.extras} if verl is not None else {}
    chosen = () if isinstance(engines, Unknown) else engines.engines
    if any(engine.key.endswith("rollout.name") for engine in chosen):
        names = {_EXTRAS.get(engine.name, "") for engine in chosen}
    else:
        names = {name for name in ENGINES if packages.get(*(VLLM_NAMES if name == "vllm" else (name,)))}
        names |= {_EXTRAS.get(engine.name, "") for engine in chosen}
    for name in sorted(names):
        if name in offered:
            yield offered[name]


def _unusable_engine(packages: Packages, uses: VllmUses | Unknown) -> str:
    """Return the installed vLLM if every job of this verl fails with it."""
    installed = packages.get(*VLLM_NAMES)
    if installed is None or isinstance(uses, Unknown):
        return ""
    stopping = (use for use in uses.uses if use.breaks and use.paths and not use.when)
    return installed.name if any(use.kind == "refusal" for use in stopping) else ""


def _twice(packages: Packages) -> Iterator[Broken]:
    """Yield what has two metadata folders.

    With an editable install only the other folder is removed, else both.
    """
    for spare in packages.duplicates:
        installed = packages.get(spare.name)
        if installed is None or (installed.version == spare.version and not installed.editable):
            continue
        why = f"it was installed twice, as {spare.version} and {installed.version}"
        if installed.editable:
            yield Broken(spare.name, "", (spare.location,), why)
            continue
        version = next(
            (found.version for found in (installed, spare) if _is_admitted(found, packages)),
            installed.version,
        )
        yield Broken(spare.name, version, (spare.location, installed.location), why)


def _is_admitted(candidate: Distribution, packages: Packages) -> bool:
    """Return whether this version and everything installed meet each other's requirements."""
    specifiers = (
        requirement.specifier
        for other in packages.distributions
        if other.name != candidate.name
        for text in other.requires
        if "extra" not in text
        and (requirement := parsed(text)) is not None
        and canonical(requirement.name) == candidate.name
    )
    own = (
        meets(requirement.specifier, installed.version)
        for text in candidate.requires
        if "extra" not in text
        and (requirement := parsed(text)) is not None
        and (installed := packages.get(canonical(requirement.name))) is not None
    )
    return all(meets(specifier, candidate.version) is not False for specifier in specifiers) and not any(
        met is False for met in own
    )


def _with_files_missing(packages: Packages, records: Records | Unknown) -> Iterator[Broken]:
    """Yield what lacks files that a job may run. An edited package is left alone: its edits would be lost."""
    drifts = () if isinstance(records, Unknown) else records.drifts
    edited = {drift.package for drift in drifts if drift.state == "changed" and not drift.lost}
    lacking: dict[str, list[Drift]] = {}
    for drift in drifts:
        if drift.lost and drift.package not in edited:
            lacking.setdefault(drift.package, []).append(drift)
    for name, lost in lacking.items():
        if (installed := packages.get(name)) is not None and not installed.editable:
            files = "a file of it was" if len(lost) == 1 else f"{len(lost)} files of it were"
            what = sorted({"missing" if drift.state == "missing" else "empty" for drift in lost})
            yield Broken(name, installed.version, (installed.location,), f"{files} {' or '.join(what)}")


def _several_opencvs(packages: Packages, closure: tuple[str, ...]) -> Iterator[Broken]:
    """Yield all but one for removal, and that one to reinstall: the last installed overwrote its files."""
    opencvs = [found for name in _OPENCVS if (found := packages.get(name)) is not None]
    if len(opencvs) < 2:
        return
    kept = next((opencv for opencv in opencvs if opencv.name in closure), opencvs[0])
    for opencv in opencvs:
        version = kept.version if opencv is kept else ""
        why = f"{' and '.join(found.name for found in opencvs)} shared the folder cv2"
        yield Broken(opencv.name, version, (opencv.location,), why)


def _left_over(sites: Iterable[str]) -> Iterator[str]:
    for site in sites:
        try:
            names = sorted(os.listdir(site))  # noqa: PTH208 - names alone
        except OSError:
            continue
        yield from (f"{site}/{name}" for name in names if name.startswith("~"))


def relative_to(prefix: str, location: str) -> str:
    """Return the path of metadata within an environment, "" if it is elsewhere."""
    top, real = os.path.realpath(prefix), os.path.realpath(location)
    return os.path.relpath(real, top) if real.startswith(f"{top}/") else ""
