"""The rules about packages, over a real virtual environment with made-up packages in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from support.environments import install

from verl_doctor.toolkit.collectors.installed.plugins import PluginProblems
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.judge import Selection, judge
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.target import Target

MODULES = {f"torch/module{number}.py": b"" for number in range(600)}

pytestmark = pytest.mark.slow  # each has an environment of its own


@pytest.fixture
def site(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=300)
    (site,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    tree = {"verl/__init__.py": b"", "verl/workers/__init__.py": b"", "verl/protocol.py": b"a = 1\n"}
    install(site, "verl", "0.6.1", requires=["ray>=2.41.0", "torch"], files=tree, requires_python=">=3.8")
    install(site, "ray", "2.49.0")
    install(site, "torch", "2.8.0", files={"torch/__init__.py": b"", **MODULES})
    return site


def judged(site: Path, **environ: str) -> Mapping[str, str]:
    """The status of each rule that did not pass."""
    cwd = site.parents[3] / "elsewhere"
    cwd.mkdir(exist_ok=True)
    given = {
        Machine: Machine(environ=environ, cwd=cwd),
        Target: Target(site.parents[2] / "bin" / "python", "--python"),
        Marker: Marker(),
        PluginProblems: PluginProblems(),
    }
    known = registry.load()
    checks = [check for check in known.checks if check.family in {"PKG", "PY"}]
    results = judge(checks, Collection(known.collectors, given), Selection(), today=date(2026, 11, 21))
    return {
        result.code: result.status
        for result in results
        if result.status not in {"pass", "skipped", "not_applicable"}
    }


def test_healthy_environment_has_no_findings(site: Path) -> None:
    assert judged(site) == {}


def test_bytecode_that_will_never_be_written_is_reported(site: Path) -> None:
    assert judged(site, PYTHONDONTWRITEBYTECODE="1") == {"PY103": "warn"}


def test_missing_requirement_fails(site: Path) -> None:
    for path in site.glob("ray-*/*"):
        path.unlink()
    next(site.glob("ray-*")).rmdir()
    assert judged(site) == {"PKG101": "fail"}


def test_edit_is_a_warning_reported_once(site: Path) -> None:
    (site / "verl" / "protocol.py").write_bytes(b"a = 2\n")
    assert judged(site) == {"PKG102": "warn"}


def test_edit_of_the_installer_cache_is_a_warning_reported_once(site: Path, tmp_path: Path) -> None:
    (site / "verl-0.6.1.dist-info" / "INSTALLER").write_text("uv\n")
    (tmp_path / "cached.py").hardlink_to(site / "verl" / "protocol.py")
    (tmp_path / "cached.py").write_bytes(b"a = 2\n")
    assert judged(site) == {"PKG103": "warn"}


def test_edit_shared_with_a_backup_is_not_an_edit_of_a_cache(site: Path, tmp_path: Path) -> None:
    (tmp_path / "backup.py").hardlink_to(site / "verl" / "protocol.py")
    (tmp_path / "backup.py").write_bytes(b"a = 2\n")
    assert judged(site) == {"PKG102": "warn"}


def test_broken_interpreter_is_a_single_failure(site: Path) -> None:
    python = site.parents[2] / "bin" / "python"
    python.unlink()
    python.write_text("#!/nowhere/python\n")
    python.chmod(0o755)
    assert [code for code, status in judged(site).items() if status in {"fail", "warn", "error"}] == ["PY100"]
