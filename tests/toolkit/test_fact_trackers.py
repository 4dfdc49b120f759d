"""Whether there is a key for a tracker, and never what it is."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from verl_doctor.toolkit.fact_job_variables import JobVariables
from verl_doctor.toolkit.fact_launch import Launch, Setting
from verl_doctor.toolkit.fact_packages import Distribution, Packages
from verl_doctor.toolkit.fact_trackers import Tracker, Trackers, trackers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

SECRET = "0123456789abcdef0123456789abcdef01234567"
HOME = "/home/me"


def look(root: Path, *settings: Setting, variables: dict[str, str] | None = None, **environ: str) -> Trackers:
    launch: Launch | Unknown = (
        Launch((("run.sh", "shell script"),), settings) if settings else Unknown("none")
    )
    machine = Machine(environ={"HOME": HOME, **environ}, cwd=Path("/job"), root=root)
    installed = Packages((Distribution("wandb", "0.31.0", ""),))
    found = trackers.collect(machine, installed, JobVariables(variables or {}), launch)
    assert isinstance(found, Trackers)
    assert SECRET not in repr(found)
    return found


def one(found: Trackers, name: str = "wandb") -> Tracker:
    return next(tracker for tracker in found.trackers if tracker.name == name)


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_nothing_is_there(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert [(tracker.installed, tracker.key_from, tracker.mode) for tracker in found.trackers] == [
        (True, "", ""),
        (False, "", ""),
    ]
    assert one(found).looked_at == ("WANDB_API_KEY", "/home/me/.netrc", "/home/me/_netrc")


@pytest.mark.parametrize(
    ("home", "wandb"),
    [
        ("/home/of/table", ("WANDB_API_KEY", "/home/of/table/.netrc", "/home/of/table/_netrc")),
        ("", ("WANDB_API_KEY",)),
    ],
)
def test_without_HOME_the_table_of_users_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, wandb: tuple[str, ...]
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=home))
    found = look(tmp_path, HOME="")
    assert one(found).looked_at == wandb
    swanlab = (f"{home}/.swanlab/.netrc",) if home else ()
    assert one(found, "swanlab").looked_at == ("SWANLAB_API_KEY", "/job/.swanlab/.netrc", *swanlab)


def test_a_key_in_the_shell_or_in_the_launch_script(tmp_path: Path) -> None:
    assert one(look(tmp_path, WANDB_API_KEY=SECRET)).key_from == "WANDB_API_KEY"
    assert one(look(tmp_path, WANDB_IDENTITY_TOKEN_FILE="/t")).key_from == "WANDB_IDENTITY_TOKEN_FILE"
    assert one(look(tmp_path, Setting("WANDB_API_KEY", None, "run.sh", 2))).key_from == "WANDB_API_KEY"
    assert one(look(tmp_path, Setting("WANDB_API_KEY", "", "run.sh", 2), WANDB_API_KEY=SECRET)).key_from == ""
    gone = Setting("WANDB_API_KEY", None, "run.sh", 2, removed=True)
    assert one(look(tmp_path, gone, WANDB_API_KEY=SECRET)).key_from == ""


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
def test_a_file_with_an_entry_for_the_server(
    tmp_path: Path, text: str, environ: dict[str, str], found: bool
) -> None:
    write(tmp_path, f"{HOME}/.netrc", text)
    assert bool(one(look(tmp_path, **environ)).key_from) is found


def test_the_file_may_be_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "/else/netrc", f"machine api.wandb.ai password {SECRET}")
    assert one(look(tmp_path, NETRC="/else/netrc")).key_from == "/else/netrc"


@pytest.mark.parametrize("path", ["/home/me/.swanlab/.netrc", "/job/.swanlab/.netrc"])
def test_swanlab_has_files_of_its_own(tmp_path: Path, path: str) -> None:
    write(tmp_path, path, f"machine https://api.swanlab.cn login x password {SECRET}")
    assert one(look(tmp_path), "swanlab").key_from == path


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({"WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_DISABLED": "true"}, "disabled"),
        ({"WANDB_DISABLED": "false"}, ""),
    ],
)
def test_a_mode_that_needs_no_server(tmp_path: Path, environ: dict[str, str], mode: str) -> None:
    assert one(look(tmp_path, **environ)).mode == mode


def test_the_mode_that_wandb_offline_leaves_behind(tmp_path: Path) -> None:
    write(tmp_path, "/job/wandb/settings", "[default]\nmode = offline\n")
    assert one(look(tmp_path)).mode == "offline"


def test_a_variable_that_says_there_is_no_network(tmp_path: Path) -> None:
    assert look(tmp_path, variables={"HF_HUB_OFFLINE": "1"}).offline == "HF_HUB_OFFLINE"
    assert look(tmp_path, variables={"HF_HUB_OFFLINE": "0"}).offline == ""
