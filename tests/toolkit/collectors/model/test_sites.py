"""Observations of the paths that a cluster lists as its sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.model.sites import SitePlace, SitePlaces, site_places
from verl_doctor.toolkit.engine.config import load
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.sites import Site, Sites, amount, is_for_output, is_placeholder
from verl_doctor.toolkit.target import UsageError


def seen(site: Site, cwd: Path, **environ: str) -> SitePlace:
    found = site_places.collect(Sites((site,), "verl-doctor.toml"), Machine(environ=environ, cwd=cwd))
    assert isinstance(found, SitePlaces)
    return found.places[0]


def test_no_sites_is_absent(tmp_path: Path) -> None:
    assert isinstance(site_places.collect(Sites(), Machine(cwd=tmp_path)), Absent)


def test_existing_folder_is_reported_with_its_content(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.safetensors").write_bytes(b"123")
    place = seen(Site("model", "$BASE/model"), tmp_path, BASE=str(tmp_path))
    assert (place.path, place.state) == (str(tmp_path / "model"), "there")
    assert place.content is not None
    assert (place.content.files, place.content.size) == (1, 3)
    assert (place.not_writable, place.free) == ("", None)


def test_results_folder_is_tested_for_write_access(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = seen(Site("out", "out", writes=True), tmp_path)
    assert (place.state, place.not_writable) == ("missing", "")
    assert place.free
    assert "is not a folder" in seen(Site("out", "file/out", writes=True), tmp_path).not_writable


@pytest.mark.parametrize("path", ["/path/to/model", "$NOBODY/x", ""])
def test_placeholder_site_is_not_set(path: str, tmp_path: Path) -> None:
    place = seen(Site("model", path), tmp_path)
    assert (place.set, place.state) == (False, "")


def test_address_is_not_resolved_and_identifies_no_host(tmp_path: Path) -> None:
    place = seen(Site("data", "s3://me:secret@bucket/x"), tmp_path)
    assert (place.elsewhere, place.path) == (True, "s3://***@bucket/x")


@pytest.mark.parametrize(
    "path",
    ["/path/to/x", "path/to/model", "CHANGE_ME", "/data/changeme", "TODO", "/x/<user>/y", "{{ base }}/x", "...", "your_model",
     "/home/your-name/x", "None", " ", "/scratch/XXX/data", "TBD", "REPLACE_ME"],
)  # fmt: skip
def test_placeholder_paths(path: str) -> None:
    assert is_placeholder(path)


@pytest.mark.parametrize(
    "path",
    [
        "/models/qwen",
        "/data/todo_list_dataset",
        "/home/pathtools/x",
        "/x/null/y",
        "/mnt/none",
        "/data/example/x",
        "/a/xx/b",
        ".",
    ],
)
def test_real_paths_are_not_placeholders(path: str) -> None:
    assert not is_placeholder(path)


def test_names_of_output_sites() -> None:
    assert all(
        map(is_for_output, ("output", "DATA_OUTPUT_DIR", "ckpt_dir", "LOG", "scratch", "default_save"))
    )
    assert not any(map(is_for_output, ("model", "DATA", "catalog", "timeout_file", "blog_data", "templates")))


def test_amounts() -> None:
    assert (amount("200 GiB"), amount("1.5TB"), amount("3"), amount("-1 GiB")) == (200 * 2**30, 15 * 10**11, None, None)  # fmt: skip


def test_site_may_have_further_fields(tmp_path: Path) -> None:
    file = tmp_path / "verl-doctor.toml"
    file.write_text('[sites]\nmodel = { path = "/m", writes = true, free = "1 GiB" }\nlogs = "/l"\n')
    assert load(tmp_path).sites == (Site("model", "/m", True, 2**30), Site("logs", "/l", True))
    for wrong in (
        "{ path = 3 }",
        '{ free = "1 GiB" }',
        '{ path = "/m", free = "much" }',
        '{ path = "/m", more = 1 }',
    ):
        file.write_text(f"[sites]\nmodel = {wrong}\n")
        with pytest.raises(UsageError, match=r"sites\.model must be a path"):
            load(tmp_path)
