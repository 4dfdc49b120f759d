"""Constraints of an installation: extras of the job, a broken engine, the cluster, the driver, and broken distributions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from support.environments import interpreter, site_packages

from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines, Engine
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages.install_needs import InstallNeeds, install_needs
from verl_doctor.toolkit.collectors.packages.records import Drift, Records
from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.facts import Unknown

SITE = "/env/lib/python3.11/site-packages"
NOTHING = Unknown("not looked at")


def at(name: str, version: str, **more: Any) -> Distribution:
    return Distribution(name, version, f"{SITE}/{name}-{version}.dist-info", **more)


VERL = at("verl", "0.9.1", extras=("vllm", "sglang", "mcore"))


def needs(
    *installed: Distribution,
    duplicates: tuple[Distribution, ...] = (),
    requirements: Requirements | Unknown = NOTHING,
    engines: ChosenEngines | Unknown = NOTHING,
    gpus: Gpus | Unknown = NOTHING,
    records: Records | Unknown = NOTHING,
    site: Interpreter | Unknown = NOTHING,
) -> InstallNeeds:
    found = install_needs.collect(
        Packages((VERL, *installed), duplicates), requirements, engines, NOTHING, NOTHING, gpus, records, site
    )
    assert isinstance(found, InstallNeeds)
    return found


def chosen(*names: tuple[str, str]) -> ChosenEngines:
    return ChosenEngines(tuple(Engine(key, name, name, name, installed=False) for key, name in names))


ROLLOUT, STRATEGY = "actor_rollout_ref.rollout.name", "actor_rollout_ref.actor.strategy"


def test_extras_follow_from_the_engines_of_the_job() -> None:
    vllm = at("vllm", "0.24.0")
    assert needs(vllm).extras == ("vllm",)
    assert needs(vllm, engines=chosen((ROLLOUT, "sglang"))).extras == ("sglang",)
    assert needs(vllm, engines=chosen((STRATEGY, "megatron"))).extras == ("mcore", "vllm")
    assert needs(engines=chosen((ROLLOUT, "trtllm"))).extras == ()  # this verl has no such extra


def test_driver_limits_the_cuda_major_version() -> None:
    assert (needs(gpus=Gpus(cuda="12.8")).cuda, needs().cuda) == ("12", "")


def test_both_of_two_metadata_folders_are_removed_and_one_reinstalled() -> None:
    new, old = at("transformers", "5.10.0", requires=("tokenizers>=0.23.1",)), at("transformers", "5.5.0")
    (broken,) = needs(new, at("tokenizers", "0.22.2"), duplicates=(old,)).broken
    assert (broken.version, broken.locations) == ("5.5.0", (old.location, new.location))
    (broken,) = needs(new, at("tokenizers", "0.23.2"), duplicates=(old,)).broken
    assert broken.version == "5.10.0"


def test_wheel_next_to_an_editable_install_is_removed() -> None:
    editable = at("ray", "3.0.dev0", editable=True)
    (broken,) = needs(editable, duplicates=(at("ray", "2.55.0"),)).broken
    assert (broken.version, broken.locations) == ("", (at("ray", "2.55.0").location,))


def test_required_one_of_several_opencvs_is_kept() -> None:
    both = (at("opencv-python", "4.12"), at("opencv-python-headless", "4.11"))
    required = Requirements(("verl",), ("verl", "opencv-python"))
    assert [(package.name, package.version) for package in needs(*both, requirements=required).broken] == [
        ("opencv-python-headless", ""),
        ("opencv-python", "4.12"),
    ]
    assert [package.name for package in needs(*both).broken if package.version] == ["opencv-python-headless"]


def test_unedited_package_with_missing_files_is_reinstalled() -> None:
    gone = Drift("torch", "2.11.0", f"{SITE}/torch/nn/functional.py", "missing")
    stub = Drift("torch", "2.11.0", f"{SITE}/torch/_VF.pyi", "missing")
    edited = Drift("torch", "2.11.0", f"{SITE}/torch/__init__.py", "changed")
    torch = at("torch", "2.11.0")
    (broken,) = needs(torch, records=Records((), (gone, stub))).broken
    assert (broken.name, broken.version, broken.why) == ("torch", "2.11.0", "a file of it was missing")
    empty = Drift(
        "torch", "2.11.0", f"{SITE}/torch/cuda/__init__.py", "changed", hashlib.sha256().hexdigest()
    )
    (broken,) = needs(torch, records=Records((), (gone, empty))).broken
    assert broken.why == "2 files of it were empty or missing"
    assert needs(torch, records=Records((), (stub,))).broken == ()
    assert needs(torch, records=Records((), (gone, edited))).broken == ()


def test_folder_moved_aside_by_pip_is_removed(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    (site / "~orch").mkdir()
    (site / "torch").mkdir()
    assert needs(site=interpreter(site)).left_over == (f"{site}/~orch",)
