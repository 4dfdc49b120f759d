"""Whether a release can be installed next to the existing packages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.matrix.fit import (
    Here,
    built_for_cuda,
    clashes,
    environment_objections,
    pin_objections,
)
from verl_doctor.toolkit.commands.matrix.requirements import PackageRequirement, ReleaseRequirements


def requires(*requirements: str, python: str = "") -> ReleaseRequirements:
    found = []
    for text in requirements:
        name = text.split("<")[0].split(">")[0].split("=")[0].split("!")[0]
        found.append(PackageRequirement(name, text[len(name) :], "METADATA"))
    return ReleaseRequirements(tuple(found), python)


NOTHING = ReleaseRequirements()


def test_pins_reject_other_versions() -> None:
    assert pin_objections(requires("vllm>=0.8,<0.11"), "vllm", "0.10.2.post1") == ()
    (refused,) = pin_objections(requires("vllm>=0.8,<0.11"), "vllm", "0.11.0")
    assert str(refused) == "verl's METADATA needs vllm>=0.8,<0.11"
    assert pin_objections(requires("ray<1"), "vllm", "0.11.0") == ()


def test_torch_builds_object_and_helpers_are_exchanged() -> None:
    now = Here("3.11.7", {"torch": "2.7.0+cu126", "setuptools": "60", "peft": "0.1", "vllm": "0.9"})
    release = requires("torch==2.8.0", "setuptools>70", "peft>1", "xgrammar==3", "vllm==9")
    firm, exchanged = environment_objections(release, requires("peft"), now)
    assert [str(objection) for objection in firm] == [
        "it needs torch==2.8.0, installed is 2.7.0+cu126",
        "it needs peft>1, installed is 0.1",
    ]
    assert [objection.about for objection in exchanged] == ["setuptools"]
    same = Here("3.11.7", {"torch": "2.8.0+cu126"})
    assert environment_objections(release, NOTHING, same) == ((), ())


def test_python_wheel_cuda_and_driver_objections() -> None:
    now = Here("3.9.1", {}, torch_cuda="12", driver="550")
    firm, _ = environment_objections(requires(python=">=3.10"), NOTHING, now, obstacle="unused", cuda="13")
    assert [str(objection) for objection in firm] == [
        "it needs python >=3.10, installed is 3.9.1",
        "it needs cuda 13, the installed torch is built for CUDA 12",
        "it needs driver >=580 for CUDA 13, installed is 550",
    ]
    firm, _ = environment_objections(
        NOTHING, NOTHING, Here("3.11"), obstacle="is built for aarch64", cuda="13"
    )
    assert [str(objection) for objection in firm] == ["it is built for aarch64"]


@pytest.mark.parametrize(
    ("modules", "cuda"),
    [
        ({"_C.abi3.so": b"\x7fELF..libcudart.so.12\0libc.so.6\0"}, "12"),
        ({"a.so": b"", "b.so": b"libnvrtc.so.13\0"}, "13"),
        ({"_C.so": b"libc.so.6"}, ""),
        ({}, ""),
    ],
)
def test_cuda_release_is_read_from_compiled_modules(
    tmp_path: Path, modules: dict[str, bytes], cuda: str
) -> None:
    for name, content in modules.items():
        (tmp_path / name).write_bytes(content)
    assert built_for_cuda(tmp_path) == cuda


RELEASED = {"numpy": ["1.26", "2.1"], "ray": ["2.40", "2.50"], "torch": ["2.8.0"]}


def clash(ours: ReleaseRequirements, theirs: ReleaseRequirements) -> tuple[list[str], tuple[str, ...]]:
    def known(name: str) -> Iterable[str] | None:
        return RELEASED.get(name)

    certain, unclear = clashes(ours, theirs, ("verl 1", "vLLM 2"), known)
    return [objection.about for objection in certain], unclear


def test_requirements_conflict_only_if_no_release_satisfies_both() -> None:
    assert clash(requires("numpy>=2"), requires("numpy<2")) == (["numpy"], ())
    assert clash(requires("numpy>=1.20"), requires("numpy<2")) == ([], ())
    assert clash(requires("ray>2.40,<2.50"), requires("ray!=2.45")) == (["ray"], ())
    assert clash(requires("torch==2.8.0"), requires("torch==2.9.0")) == (["torch"], ())
    assert clash(requires("torch==2.9.0"), requires("torch==2.9.0+cpu")) == ([], ())
    assert clash(requires("pyarrow<1"), requires("pyarrow>2")) == ([], ("pyarrow",))
    assert clash(requires("pyarrow"), requires("pyarrow>2")) == ([], ())
    assert clash(requires("a<1"), requires("b>2")) == ([], ())
    assert clash(requires("packaging>=20"), requires("packaging>=24.2")) == ([], ())
