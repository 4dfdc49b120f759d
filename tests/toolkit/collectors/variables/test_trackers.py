"""Whether a tracker has a key, without reading the key."""

from __future__ import annotations

import pwd
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.trackers import Tracker, Trackers, trackers
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

SECRET = "0123456789abcdef0123456789abcdef01234567"
HOME = "/home/me"
NO_RAYLET = Absent("no raylet runs on this machine")
ENVIRONMENT = Target(Path("/env/bin/python"), "--python")


def look(
    root: Path,
    *settings: Setting,
    variables: dict[str, str] | None = None,
    launch: Launch | Unknown | None = None,
    raylets: Raylets | Unknown = NO_RAYLET,
    **environ: str,
) -> Trackers:
    if launch is None:
        launch = Launch((("run.sh", "shell script"),), settings) if settings else Unknown("none")
    machine = Machine(environ={"HOME": HOME, **environ}, cwd=Path("/job"), root=root)
    installed = Packages((Distribution("wandb", "0.31.0", ""),))
    found = trackers.collect(
        machine, ENVIRONMENT, installed, JobVariables(variables or {}), launch, interpreter(root), raylets
    )
    assert isinstance(found, Trackers)
    assert SECRET not in repr(found)
    return found


def interpreter(root: Path) -> Interpreter:
    return Interpreter(
        executable="/env/bin/python", version="3.12.0", implementation="CPython", cache_tag="cpython-312",
        environment="venv", prefix="/env", sys_path=(str(root / "site"),), site_packages=(str(root / "site"),),
        system="Linux", machine="x86_64", glibc="2.35", verl="", vllm="",
    )  # fmt: skip


def tracker_in(found: Trackers, name: str = "wandb") -> Tracker:
    return next(tracker for tracker in found.trackers if tracker.name == name)


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_defaults_without_any_login(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert [(tracker.installed, tracker.key_from, tracker.mode) for tracker in found.trackers] == [
        (True, "", ""),
        (False, "", ""),
    ]
    assert tracker_in(found).looked_at == ("WANDB_API_KEY", "/home/me/.netrc", "/home/me/_netrc")


@pytest.mark.parametrize(
    ("home", "wandb"),
    [
        ("/home/of/table", ("WANDB_API_KEY", "/home/of/table/.netrc", "/home/of/table/_netrc")),
        ("", ("WANDB_API_KEY",)),
    ],
)
def test_home_defaults_to_the_user_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, wandb: tuple[str, ...]
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=home))
    found = look(tmp_path, HOME="")
    assert tracker_in(found).looked_at == wandb
    swanlab = (f"{home}/.swanlab/.netrc",) if home else ()
    assert tracker_in(found, "swanlab").looked_at == ("SWANLAB_API_KEY", "/job/.swanlab/.netrc", *swanlab)


def test_key_in_the_shell_or_in_the_launch_script(tmp_path: Path) -> None:
    assert tracker_in(look(tmp_path, WANDB_API_KEY=SECRET)).key_from == "WANDB_API_KEY"
    assert tracker_in(look(tmp_path, WANDB_IDENTITY_TOKEN_FILE="/t")).key_from == "WANDB_IDENTITY_TOKEN_FILE"
    assert tracker_in(look(tmp_path, Setting("WANDB_API_KEY", None, "run.sh", 2))).key_from == "WANDB_API_KEY"
    assert (
        tracker_in(look(tmp_path, Setting("WANDB_API_KEY", "", "run.sh", 2), WANDB_API_KEY=SECRET)).key_from
        == ""
    )
    gone = Setting("WANDB_API_KEY", None, "run.sh", 2, removed=True)
    assert tracker_in(look(tmp_path, gone, WANDB_API_KEY=SECRET)).key_from == ""


@pytest.mark.parametrize(
    ("text", "environ", "found"),
    [
        (f"machine api.wandb.ai\n  login user\n  password {SECRET}\n", {}, True),
        (f"machine example.com login user password {SECRET}\n", {}, False),
        (
            f"machine api.wandb.ai password {SECRET}\n",
            {"WANDB_BASE_URL": "https://wandb.example.com/"},
            False,
        ),
        (
            f"machine wandb.example.com password {SECRET}\n",
            {"WANDB_BASE_URL": "https://wandb.example.com/"},
            True,
        ),
    ],
)
def test_file_with_an_entry_for_the_server(
    tmp_path: Path, text: str, environ: dict[str, str], found: bool
) -> None:
    write(tmp_path, f"{HOME}/.netrc", text)
    assert bool(tracker_in(look(tmp_path, **environ)).key_from) is found


def test_netrc_variable_moves_the_file(tmp_path: Path) -> None:
    write(tmp_path, "/else/netrc", f"machine api.wandb.ai password {SECRET}")
    assert tracker_in(look(tmp_path, NETRC="/else/netrc")).key_from == "/else/netrc"


@pytest.mark.parametrize("path", ["/home/me/.swanlab/.netrc", "/job/.swanlab/.netrc"])
def test_swanlab_files_are_read(tmp_path: Path, path: str) -> None:
    write(tmp_path, path, f"machine https://api.swanlab.cn login x password {SECRET}")
    assert tracker_in(look(tmp_path), "swanlab").key_from == path


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({"WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_DISABLED": "true"}, "disabled"),
        ({"WANDB_DISABLED": "false"}, ""),
    ],
)
def test_mode_without_a_server(tmp_path: Path, environ: dict[str, str], mode: str) -> None:
    assert tracker_in(look(tmp_path, **environ)).mode == mode


def test_mode_saved_by_wandb_offline(tmp_path: Path) -> None:
    write(tmp_path, "/job/wandb/settings", "[default]\nmode = offline\n")
    assert tracker_in(look(tmp_path)).mode == "offline"


def test_offline_variable_is_recognised(tmp_path: Path) -> None:
    assert look(tmp_path, variables={"HF_HUB_OFFLINE": "1"}).offline == "HF_HUB_OFFLINE"
    assert look(tmp_path, variables={"HF_HUB_OFFLINE": "0"}).offline == ""


JOB = Launch((("run.sh", "shell script"),))


def test_wandb_refuses_to_run_without_a_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        "/site/wandb/sdk/wandb_login.py",
        "\nraise UsageError('api_key not configured (no-tty). call ')",
    )
    place = f"{tmp_path}/site/wandb/sdk/wandb_login.py:2"
    assert tracker_in(look(tmp_path, launch=JOB)).refuses == place
    assert tracker_in(look(tmp_path, launch=JOB), "swanlab").refuses == ""
    assert tracker_in(look(tmp_path, launch=replace(JOB, submitted=True))).refuses == ""
    assert tracker_in(look(tmp_path, launch=JOB, raylets=Raylets())).refuses == ""
    assert tracker_in(look(tmp_path, launch=JOB, variables={"RAY_ADDRESS": "10.0.0.1:6379"})).refuses == ""
    assert tracker_in(look(tmp_path, launch=JOB, WANDB_ANONYMOUS="allow")).refuses == ""


def test_modes_are_those_of_the_installed_wandb(tmp_path: Path) -> None:
    settings = 'class Settings:\n    x: int\n    mode: Literal["online", "offline", "run"] = Field(\n'
    write(tmp_path, "/site/wandb/sdk/wandb_settings.py", settings)
    found = tracker_in(look(tmp_path, launch=JOB, WANDB_MODE="ofline"))
    assert (found.mode, found.modes) == ("ofline", ("online", "offline", "run"))
    assert found.modes_from == f"{tmp_path}/site/wandb/sdk/wandb_settings.py:3"
    assert tracker_in(look(tmp_path, launch=JOB, raylets=Raylets())).modes == ()
    assert tracker_in(look(tmp_path, launch=JOB), "swanlab").modes == ()


def test_signs_that_wandb_refuses_are_read(tmp_path: Path) -> None:
    settings = (
        "    def validate_project(cls, value):\n"
        '        invalid_chars_list = list("/\\\\#?%:")\n'
        "        if len(value) > 128:\n"
        '            raise UsageError(f"Invalid project name {value!r}: exceeded 128 characters")\n'
    )
    write(tmp_path, "/site/wandb/sdk/wandb_settings.py", settings)
    found = tracker_in(look(tmp_path, launch=JOB))
    assert found.barred == "/\\#?%:"
    assert found.barred_from == f"{tmp_path}/site/wandb/sdk/wandb_settings.py:2"
    write(tmp_path, "/site/wandb/sdk/wandb_settings.py", settings.replace("project name", "other name"))
    assert tracker_in(look(tmp_path, launch=JOB)).barred == ""


@pytest.mark.parametrize("command", ["wandb disabled", "python3 -m wandb offline"])
def test_script_that_switches_wandb_off_needs_no_key(tmp_path: Path, command: str) -> None:
    """wandb writes the mode into wandb/settings, which this machine does not have yet."""
    write(tmp_path, "/site/wandb/sdk/wandb_login.py", "# No API key configured. Use")
    write(tmp_path, "/run.sh", f"{command}\n")
    launch = replace(JOB, files=((str(tmp_path / "run.sh"), "shell script"),))
    found = tracker_in(look(tmp_path, launch=launch))
    assert (found.refuses, found.barred) == ("", "")


def test_script_that_logs_in_needs_no_key(tmp_path: Path) -> None:
    write(tmp_path, "/site/wandb/sdk/wandb_login.py", "# No API key configured. Use")
    write(tmp_path, "/run.sh", "wandb login $KEY\n")
    job = Launch(((f"{tmp_path}/run.sh", "shell script"),))
    assert tracker_in(look(tmp_path, launch=job)).refuses == ""


def test_installation_is_unknown_for_a_bare_tree(tmp_path: Path) -> None:
    only_a_tree = Target(Path("/own/bin/python"), "verl-doctor's own", verl=Path("/tree/verl"))
    found = trackers.collect(
        Machine(root=tmp_path),
        only_a_tree,
        Packages(()),
        JobVariables({}),
        Unknown("none"),
        Unknown("none"),
        NO_RAYLET,
    )
    assert isinstance(found, Unknown)
    assert "--python" in found.reason


@pytest.mark.parametrize(
    ("value", "removed", "text"),
    [("<your_key>", False, "<your_key>"), ("<your_key>", True, ""), (None, False, ""), ("", False, "")],
)
def test_text_in_place_of_a_key(tmp_path: Path, value: str | None, removed: bool, text: str) -> None:
    setting = Setting("WANDB_API_KEY", value, "run.sh", 3, removed)
    assert tracker_in(look(tmp_path, setting, WANDB_API_KEY=SECRET)).to_fill_in == text
