"""The address of a rule's page: of the project URL called Documentation, where the package names one."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.render.sarif import _descriptor
from verl_doctor.toolkit.system import website


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Message]:
    """The metadata of an installed verl-doctor; tests add project URLs."""
    metadata = Message()
    monkeypatch.setattr(importlib.metadata, "metadata", lambda _name: metadata)
    website.documentation_site.cache_clear()
    yield metadata
    website.documentation_site.cache_clear()


def test_no_page_without_a_documentation_address(urls: Message) -> None:
    urls["Project-URL"] = "Repository, https://code.example/verl-doctor"
    assert website.page_of("CUDA105") is None


@pytest.mark.parametrize("address", ["https://docs.example/v", "https://docs.example/v/"])
def test_page_is_below_the_documentation_address(urls: Message, address: str) -> None:
    urls["Project-URL"] = f"Documentation, {address}"
    assert website.page_of("CUDA105") == "https://docs.example/v/rules/CUDA105.html"


def test_metadata_file_of_an_installed_package_is_read_directly(
    urls: Message, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file next to the package is read; two, as after an interrupted upgrade, are left to importlib."""
    urls["Project-URL"] = "Documentation, https://importlib.example"
    monkeypatch.setattr(website, "TOOLKIT", tmp_path / "verl_doctor" / "toolkit")
    beside = tmp_path / "verl_doctor-0.2.0.dist-info"
    beside.mkdir()
    (beside / "METADATA").write_text(
        "Name: verl-doctor\nProject-URL: Repository, https://code.example\n"
        "Project-URL: Documentation, https://docs.example/\n\nProject-URL: Documentation, https://text.example\n"
    )
    assert website.page_of("CUDA105") == "https://docs.example/rules/CUDA105.html"
    (tmp_path / "verl_doctor-0.1.0.dist-info").mkdir()
    (tmp_path / "verl_doctor-0.1.0.dist-info/METADATA").write_text("Name: verl-doctor\n")
    website.documentation_site.cache_clear()
    assert website.page_of("CUDA105") == "https://importlib.example/rules/CUDA105.html"


def test_sarif_and_explain_link_to_the_page(urls: Message, here: Doctor, tmp_path: Path) -> None:
    rule = registry.load().check("CUDA105")
    assert rule is not None
    assert "helpUri" not in _descriptor(rule)
    website.documentation_site.cache_clear()
    urls["Project-URL"] = "Documentation, https://docs.example"
    assert _descriptor(rule)["helpUri"] == "https://docs.example/rules/CUDA105.html"
    assert here("explain", "cuda105", cwd=tmp_path).stdout.endswith(
        "\nhttps://docs.example/rules/CUDA105.html\n"
    )
