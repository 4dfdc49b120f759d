"""PY102: a compiled package needs a newer glibc, or another processor, than this machine has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.packages.wheels import Wheel, Wheels, platforms_of
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


def _facts(
    tag: str, glibc: str = "2.31", machine: str = "x86_64", system: str = "Linux"
) -> tuple[Interpreter, Wheels]:
    python = replace(PYTHON, system=system, machine=machine, glibc=glibc)
    return python, Wheels(
        (
            Wheel(
                name="vllm",
                version="0.11.0",
                tags=(tag,),
                built_for=(),
                location="/env/vllm-0.11.0.dist-info",
            ),
        )
    )


def _not_linux(interpreter: Interpreter) -> str | None:
    return None if interpreter.system == "Linux" else f"this is {interpreter.system}"


def _examples() -> list[Example]:
    return [
        Example("glibc is as new as the wheel requires", _facts("cp38-abi3-manylinux_2_31_x86_64")),
        Example("the old name of a tag", _facts("cp38-abi3-manylinux2014_x86_64")),
        Example("a wheel that was built here", _facts("cp311-cp311-linux_x86_64")),
        Example("one of two tags fits", _facts("cp38-abi3-manylinux_2_17_x86_64.manylinux_2_40_x86_64")),
        Example("no Linux", _facts("cp38-abi3-macosx_11_0_arm64", "", "arm64", "Darwin")),
        Example(
            "glibc is older",
            _facts("cp38-abi3-manylinux_2_35_x86_64"),
            "needs glibc 2.35, but this machine has 2.31",
        ),
        Example(
            "there is no glibc", _facts("cp38-abi3-manylinux_2_35_x86_64", ""), "but this machine has none"
        ),
        Example("another processor", _facts("cp38-abi3-manylinux_2_31_x86_64", machine="aarch64"), "x86_64"),
    ]


@check("PY102", phase="import", requires={"PY100"}, applies=_not_linux, examples=_examples)
def glibc_too_old(interpreter: Interpreter, wheels: Wheels) -> Iterator[Finding]:
    """A compiled package needs a newer glibc, or another processor, than this machine has.

    ## Why it matters

    Installers refuse such a wheel. But an environment that was copied, or that lies on a shared file system,
    also runs on machines that it was not made on. There the import fails: `version 'GLIBC_2.32' not found`,
    or `wrong ELF class`.

    ## How to fix

    Run in a container with a new enough glibc (Ubuntu 20.04 has 2.31, 22.04 has 2.35, 24.04 has 2.39), or
    install a release whose wheel requires less. glibc cannot be replaced on a running system.
    """
    here = _pair(interpreter.glibc)
    for wheel in wheels.wheels:
        platforms = list(platforms_of(wheel.tags))
        if not platforms or any(_runs(platform, interpreter, here) for platform in platforms):
            continue
        (major, minor), arch = min(platforms)
        if all(arch != interpreter.machine for _, arch in platforms):
            found, wanted = f"a processor of type {interpreter.machine}", arch
            message = (
                f"{wheel.name} {wheel.version} is built for {arch}, but this machine is {interpreter.machine}"
            )
        else:
            found, wanted = f"glibc {interpreter.glibc or 'missing'}", f"glibc {major}.{minor}"
            has = interpreter.glibc or "none (another C library)"
            message = f"{wheel.name} {wheel.version} needs glibc {major}.{minor}, but this machine has {has}"
        yield Finding(
            message,
            Evidence(found, wanted, f"{wheel.location}/WHEEL"),
            location=Location(wheel.location),
            remedy=(
                f"run in a container that has {wanted}, or install a release of {wheel.name} made for this "
                "machine"
            ),
            subject=Subject("package", wheel.name, wheel.version),
        )


def _runs(platform: tuple[tuple[int, int], str], interpreter: Interpreter, here: tuple[int, int]) -> bool:
    needs, arch = platform
    return arch == interpreter.machine and needs <= here


def _pair(version: str) -> tuple[int, int]:
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
