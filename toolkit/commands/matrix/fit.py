"""Whether a release may be installed beside what is there: verl's pins, the installed packages, CUDA and the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.commands.matrix.requirements import Want, Wants

# The order in which objections are told: what most often decides.
_FIRST = ("python", "wheel", "torch", "cuda", "driver", "transformers", "ray", "tensordict", "numpy")
# What other parts of an environment are built for or written against, so that it cannot be exchanged along with vLLM. What
# verl itself names belongs to it too.
_FIRM = frozenset({"python", "wheel", "torch", "cuda", "driver", "transformers", "ray"})
_NO_PACKAGE = frozenset({"python", "wheel", "cuda", "driver"})
# The least NVIDIA driver for a CUDA runtime, by its first number, as of 2026-11:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_LEAST_DRIVER = {"11": 450, "12": 525, "13": 580}
# Wishes that a new enough release always meets.
_FROM_BELOW = frozenset({">=", ">", "!="})
_RUNTIME = re.compile(rb"lib(?:cudart|nvrtc)\.so\.(\d{2})")
_TORCH_CUDA = re.compile(r"^cuda\s*(?::[^=]*)?=\s*['\"](\d{2})(?:\.\d+)?['\"]", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module[^\n]*?\s(\d{3,4})\.\d+")
_LARGEST_MODULE = 4_000_000  # bytes


@dataclass(frozen=True)
class Objection:
    """One reason why a release does not fit: what about (a package, "python", "cuda"...), what is wanted, what is here.

    `by` says who wants it, "it" for the release itself. `here` is empty where the release itself is what is not wanted.
    """

    about: str
    wanted: str
    here: str
    by: str

    def __str__(self) -> str:
        space = " " if self.wanted[:1].isalnum() or self.about in _NO_PACKAGE else ""
        wanted = f"wants {self.about}{space}{self.wanted}" if self.wanted else ""
        return f"{self.by} {', '.join(filter(None, (wanted, self.here)))}"


@dataclass(frozen=True)
class Here:
    """The target as far as it can object: its Python, what is installed, and what CUDA there is.

    `torch_cuda` is the first number of the CUDA release that the installed torch was built for, `driver` that of the NVIDIA
    driver's version; each is empty when there is none or it cannot be told.
    """

    python: str = ""
    installed: Mapping[str, str] | None = None
    torch_cuda: str = ""
    driver: str = ""


def here(interpreter: Interpreter | None, packages: Packages | None) -> Here:
    """Look at the target."""
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
    """The first number of the CUDA release for which compiled modules below a folder were built, empty when they name none."""
    for path in sorted(folder.rglob("*.so")):
        if 0 < path.stat().st_size <= _LARGEST_MODULE and (match := _RUNTIME.search(path.read_bytes())):
            return match[1].decode()
    return ""


def pin_objections(pins: Wants, name: str, version: str) -> tuple[Objection, ...]:
    """Which of verl's pins do not admit a version."""
    refused = {
        Objection(name, want.specifier, "", f"verl's {want.source}"): None
        for want in pins.of(name)
        if want.allows(version) is False
    }
    return tuple(refused)


def environment_objections(
    wants: Wants, verl: Wants, now: Here, *, obstacle: str = "", cuda: str = ""
) -> tuple[tuple[Objection, ...], tuple[Objection, ...]]:
    """What of the target contradicts a release, and what would only be exchanged when it is installed.

    What is not installed contradicts nothing: it will be.
    """
    firm = _FIRM | {want.name for want in verl.requirements}
    found = {
        objection: None
        for objection in _environment(wants, now, obstacle, cuda)
        if objection.about not in {"verl", "vllm"}
    }
    ordered = sorted(found, key=lambda objection: (_rank(objection.about), objection.about))
    return tuple(objection for objection in ordered if objection.about in firm), tuple(
        objection for objection in ordered if objection.about not in firm
    )


def _environment(wants: Wants, now: Here, obstacle: str, cuda: str) -> Iterator[Objection]:
    if now.python and Want("python", wants.python, "").allows(now.python) is False:
        yield Objection("python", wants.python, f"here is {now.python}", "it")
    elif obstacle:
        yield Objection("wheel", "", obstacle, "it")
    for want in wants.requirements:
        there = (now.installed or {}).get(want.name)
        if there is not None and want.allows(there) is False:
            yield Objection(want.name, want.specifier, f"here is {there}", "it")
    if cuda and now.torch_cuda and cuda != now.torch_cuda:
        yield Objection("cuda", cuda, f"torch here is built for CUDA {now.torch_cuda}", "it")
    least = _LEAST_DRIVER.get(cuda)
    if least is not None and now.driver and int(now.driver) < least:
        yield Objection("driver", f">={least} for CUDA {cuda}", f"here is {now.driver}", "it")


def clashes(
    ours: Wants, theirs: Wants, by: tuple[str, str], known: Callable[[str], Iterable[str] | None]
) -> tuple[tuple[Objection, ...], tuple[str, ...]]:
    """The packages of which no released version satisfies both sides, and those of which it cannot be told.

    `known` lists the released versions of a package, None when they cannot be had. Only where the wishes differ is it
    asked.
    """
    certain, open_ = [], []
    for name in sorted(
        {want.name for want in ours.requirements} & {want.name for want in theirs.requirements}
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
                Objection(name, str(specifier_set), f"{by[1]} wants {other}: no release is both", by[0])
            )
    return tuple(sorted(certain, key=lambda objection: (_rank(objection.about), objection.about))), tuple(
        open_
    )


def _joined(wants: Iterable[Want]) -> SpecifierSet | None:
    try:
        return SpecifierSet(",".join(dict.fromkeys(filter(None, (want.specifier for want in wants)))))
    except InvalidSpecifier:
        return None


def _rank(about: str) -> int:
    return _FIRST.index(about) if about in _FIRST else len(_FIRST)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:_LARGEST_MODULE]
    except OSError:
        return ""
