"""Compiling caches once."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.patches.install.precompile import precompile
from verl_doctor.toolkit.change import CompileBytecode, Refusal
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode, PackageBytecode
from verl_doctor.toolkit.rule import Evidence, Finding
from verl_doctor.toolkit.target import Target

FINDING = Finding("2,400 sources have no bytecode cache", Evidence("torch lacks 2,400"))
TARGET = Target(Path("/env/bin/python"), "--python")
LACKING = PackageBytecode("torch", "/env/site/torch", 2_400, 2_400)
COMPLETE = PackageBytecode("ray", "/env/site/ray", 2_700, 0)


def test_only_packages_without_caches_are_compiled() -> None:
    plan = precompile.plan(FINDING, TARGET, Bytecode((LACKING, COMPLETE), writable=True))
    assert plan == [CompileBytecode(TARGET.python, (Path("/env/site/torch"),))]


def test_whole_site_packages_is_compiled_but_only_the_package_of_a_checkout() -> None:
    verl = PackageBytecode("verl", "/home/me/verl/verl", 300, 300)
    plan = precompile.plan(FINDING, TARGET, Bytecode((LACKING, verl), writable=True, installs=("/env/site",)))
    assert plan == [CompileBytecode(TARGET.python, (Path("/env/site"), Path("/home/me/verl/verl")))]


def test_unwritable_folder_is_refused() -> None:
    plan = precompile.plan(FINDING, TARGET, Bytecode((LACKING,), writable=False))
    assert plan == Refusal("site-packages is not writable for this user")


def test_caches_elsewhere_are_refused() -> None:
    plan = precompile.plan(FINDING, TARGET, Bytecode((LACKING,), writable=True, prefix="/caches"))
    assert isinstance(plan, Refusal)


def test_complete_caches_are_left_alone() -> None:
    assert isinstance(precompile.plan(FINDING, TARGET, Bytecode((COMPLETE,), writable=True)), Refusal)
