"""Texts about installed files: caches, commands for reinstallation, and shortened lists."""

from __future__ import annotations

import pytest

from verl_doctor.checks.packages._installed import below_site, cache_of, reinstall
from verl_doctor.checks.packages.cache_entry_edited import cache_entry_edited
from verl_doctor.checks.packages.file_differs_from_wheel import file_differs_from_wheel
from verl_doctor.toolkit.collectors.packages.journal import JournalHistory
from verl_doctor.toolkit.collectors.packages.records import Drift, Records
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.testing import run_check
from verl_doctor.toolkit.text import listed


def drift(*, installer: str, links: int = 1, leads_to: str = "") -> Drift:
    return Drift(
        "vllm", "0.11.0", "/env/lib/python3.11/site-packages/vllm/a.py", "changed", "ab", links, leads_to,
        installer=installer,
    )  # fmt: skip


def reported(one: Drift) -> tuple[str, Finding]:
    found = Records((), (one,))
    results = [
        run_check(cache_entry_edited, found),
        run_check(file_differs_from_wheel, found, JournalHistory()),
    ]
    ((code, finding),) = [(result.code, finding) for result in results for finding in result.findings]
    return code, finding


@pytest.mark.parametrize(
    ("one", "cache"),
    [
        (drift(installer="uv", links=2), "uv"),
        (drift(installer="uv-pixi", links=2), "uv"),
        (drift(installer="conda", links=2), "conda"),
        (drift(installer="pip", links=2), ""),
        (drift(installer="", links=2), ""),
        (drift(installer="uv"), ""),
        (drift(installer="uv", leads_to="/cache/uv/archive-v0/abc/vllm/a.py"), "uv"),
        (drift(installer="conda", leads_to="/me/conda/pkgs/vllm/a.py"), "conda"),
        (drift(installer="uv", leads_to="/home/me/patched/a.py"), ""),
        (drift(installer="", leads_to="/cache/uv/archive-v0/abc/vllm/a.py"), "uv"),
        (drift(installer="pip", leads_to="/home/me/pkgs/a.py"), ""),
    ],
)
def test_cache_is_named_only_if_its_installer_is_known(one: Drift, cache: str) -> None:
    assert cache_of(one) == cache
    code, finding = reported(one)
    assert code == ("PKG103" if cache else "PKG102")
    assert ("cache" in f"{finding.message} {finding.remedy}") is bool(cache)


def test_shared_edit_reports_only_proven_sharing() -> None:
    _, finding = reported(drift(installer="pip", links=2))
    assert "1 of these is hard-linked elsewhere" in finding.message
    _, finding = reported(drift(installer="pip", leads_to="/home/me/a.py"))
    assert finding.message.endswith("(a link to /home/me/a.py)")


@pytest.mark.parametrize(
    ("installer", "command"),
    [
        ("pip", "pip install --force-reinstall --no-deps vllm==0.11.0"),
        ("", "pip install --force-reinstall --no-deps vllm==0.11.0"),
        ("uv", "uv pip install --no-deps --reinstall-package vllm vllm==0.11.0"),
        ("conda", "conda install --force-reinstall vllm"),
    ],
)
def test_reinstallation_uses_the_installer_of_the_package(installer: str, command: str) -> None:
    assert reinstall("vllm", "0.11.0", installer) == command


def test_paths_are_shown_relative_to_site_packages() -> None:
    assert below_site("/env/lib/python3.11/site-packages/vllm/a.py") == "vllm/a.py"
    assert below_site("/usr/lib/python3/dist-packages/vllm/a.py") == "vllm/a.py"
    assert below_site("/home/me/vllm/a.py") == "/home/me/vllm/a.py"


@pytest.mark.parametrize(
    ("words", "shown"), [("", ""), ("a", "a"), ("a b", "a, b"), ("a b c", "a, b and 1 more")]
)
def test_long_list_is_shortened_and_counted(words: str, shown: str) -> None:
    assert listed(words.split(), 2) == shown
