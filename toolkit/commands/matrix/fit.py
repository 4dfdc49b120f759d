"""Whether a release can be installed: verl's pins, the environment's packages, CUDA and the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.commands.matrix.requirements import PackageRequirement, ReleaseRequirements

# The order of objections: the most frequent obstacle first.
_FIRST = ("python", "wheel", "torch", "cuda", "driver", "transformers", "ray", "tensordict", "numpy")
# What other packages are built for or written against, so that it cannot be replaced along with vLLM. verl's
# own requirements are included.
_FIRM = frozenset({"python", "wheel", "torch", "cuda", "driver", "transformers", "ray"})
_NO_PACKAGE = frozenset({"python", "wheel", "cuda", "driver"})
# The minimum NVIDIA driver per CUDA major release, as of 2026-11:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_LEAST_DRIVER = {"11": 450, "12": 525, "13": 580}
# Requirements that a recent release always meets.
_FROM_BELOW = frozenset({">=", ">", "!="})
_RUNTIME = re.compile(rb"lib(?:cudart|nvrtc)\.so\.(\d{2})")
_TORCH_CUDA = re.compile(r"^cuda\s*(?::[^=]*)?=\s*['\"](\d{2})(?:\.\d+)?['\"]", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module[^\n]*?\s(\d{3,4})\.\d+")
_LARGEST_MODULE = 4_000_000  # bytes


@dataclass(frozen=True)
class Objection:
    """One reason why a release does not fit: its subject, what is required, what is here.

    The subject is a package, "python", "cuda" and the like.

    `by` is what requires it, "it" for the release itself. `here` is empty if the release itself is rejected.
    """

    about: str
    wanted: str
    here: str
    by: str

    def __str__(self) -> str:
        space = " " if self.wanted[:1].isalnum() or self.about in _NO_PACKAGE else ""
        wanted = f"needs {self.about}{space}{self.wanted}" if self.wanted else ""
        return f"{self.by} {', '.join(filter(None, (wanted, self.here)))}"


@dataclass(frozen=True)
class Here:
    """The constraints of the target: its Python, installed packages and CUDA.

    `torch_cuda` is the first number of the CUDA release that the installed torch was built for, `driver` that
    of the NVIDIA driver's version; each is empty if missing or unknown.
    """

    python: str = ""
    installed: Mapping[str, str] | None = None
    torch_cuda: str = ""
    driver: str = ""


def here(interpreter: Interpreter | None, packages: Packages | None) -> Here:
    """Examine the target."""
    if interpreter is None:
        return Here()
    installed = (
        {distribution.name: distribution.version for distribution in packages.distributions}
        if packages is not None
        else None
    )
    cuda = ""
    for entry in interpreter.sys_path:
        text = _text(Path(entry, "torch", "version.py"))
        if match := _TORCH_CUDA.search(text):
            cuda = match[1]
        if text:
            break
    driver = _DRIVER.search(_text(Path("/proc/driver/nvidia/version")))
    return Here(interpreter.version, installed, cuda, driver[1] if driver else "")


def built_for_cuda(folder: Path) -> str:
    """Return the major CUDA release that modules below a folder were built for, empty if they name none."""
    for path in sorted(folder.rglob("*.so")):
        if 0 < path.stat().st_size <= _LARGEST_MODULE and (match := _RUNTIME.search(path.read_bytes())):
            return match[1].decode()
    return ""


def pin_objections(pins: ReleaseRequirements, name: str, version: str) -> tuple[Objection, ...]:
    """Return which of verl's pins do not admit a version."""
    refused = {
        Objection(name, requirement.specifier, "", f"verl's {requirement.source}"): None
        for requirement in pins.of(name)
        if requirement.allows(version) is False
    }
    return tuple(refused)


def environment_objections(
    release: ReleaseRequirements, verl: ReleaseRequirements, now: Here, *, obstacle: str = "", cuda: str = ""
) -> tuple[tuple[Objection, ...], tuple[Objection, ...]]:
    """Return what in the target conflicts with a release, and what its installation would merely replace.

    A missing package does not conflict: it will be installed.
    """
    firm = _FIRM | {requirement.name for requirement in verl.requirements}
    found = {
        objection: None
        for objection in _environment(release, now, obstacle, cuda)
        if objection.about not in {"verl", "vllm"}
    }
    ordered = sorted(found, key=lambda objection: (_rank(objection.about), objection.about))
    return tuple(objection for objection in ordered if objection.about in firm), tuple(
        objection for objection in ordered if objection.about not in firm
    )


def _environment(release: ReleaseRequirements, now: Here, obstacle: str, cuda: str) -> Iterator[Objection]:
    if now.python and PackageRequirement("python", release.python, "").allows(now.python) is False:
        yield Objection("python", release.python, f"installed is {now.python}", "it")
    elif obstacle:
        yield Objection("wheel", "", obstacle, "it")
    for requirement in release.requirements:
        version = (now.installed or {}).get(requirement.name)
        if version is not None and requirement.allows(version) is False:
            yield Objection(requirement.name, requirement.specifier, f"installed is {version}", "it")
    if cuda and now.torch_cuda and cuda != now.torch_cuda:
        yield Objection("cuda", cuda, f"the installed torch is built for CUDA {now.torch_cuda}", "it")
    least = _LEAST_DRIVER.get(cuda)
    if least is not None and now.driver and int(now.driver) < least:
        yield Objection("driver", f">={least} for CUDA {cuda}", f"installed is {now.driver}", "it")


def clashes(
    ours: ReleaseRequirements,
    theirs: ReleaseRequirements,
    by: tuple[str, str],
    known: Callable[[str], Iterable[str] | None],
) -> tuple[tuple[Objection, ...], tuple[str, ...]]:
    """Return packages of which no released version satisfies both sides, and those where it is unknown.

    `known` lists the released versions of a package, None if unavailable. It is called only if the
    requirements differ.
    """
    certain, open_ = [], []
    for name in sorted(
        {requirement.name for requirement in ours.requirements}
        & {requirement.name for requirement in theirs.requirements}
    ):
        specifier_set, other = _joined(ours.of(name)), _joined(theirs.of(name))
        if specifier_set is None or other is None or not specifier_set or not other:
            continue
        both = specifier_set & other
        if all(pin.operator in _FROM_BELOW for pin in both):
            continue
        pinned = [pin.version for pin in both if pin.operator in {"==", "==="} and "*" not in pin.version]
        versions = pinned or known(name)
        if versions is None:
            open_.append(name)
        elif not any(both.contains(version, prereleases=True) for version in versions):
            certain.append(
                Objection(
                    name, str(specifier_set), f"{by[1]} needs {other}: no release satisfies both", by[0]
                )
            )
    return tuple(sorted(certain, key=lambda objection: (_rank(objection.about), objection.about))), tuple(
        open_
    )


def _joined(requirements: Iterable[PackageRequirement]) -> SpecifierSet | None:
    try:
        return SpecifierSet(
            ",".join(dict.fromkeys(filter(None, (requirement.specifier for requirement in requirements))))
        )
    except InvalidSpecifier:
        return None


def _rank(about: str) -> int:
    return _FIRST.index(about) if about in _FIRST else len(_FIRST)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:_LARGEST_MODULE]
    except OSError:
        return ""
