"""The construction's child in a miniature of verl: failures, hangs, crashes and blocked accesses."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.buildable_verl import REWARD, write

from verl_doctor.toolkit.collectors.construction.child import builder, constructed
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

VALIDATION = "site-packages/verl/utils/config.py"
VALIDATE = "import os, signal, time\ndef validate_config(config, use_reference_policy, use_critic):\n    {}\n"


def request(folder: Path, *words: str, most: float = 20.0) -> dict[str, Any]:
    return {
        "folder": str(folder / "job"),
        "tree": str(folder / "site-packages"),
        "module": "verl.trainer.main_ppo",
        "config_folder": str(folder / "site-packages" / "config"),
        "config_name": "ppo_trainer",
        "overrides": list(words),
        "environ": {},
        "most": most,
    }


def run(folder: Path, *words: str, most: float = 20.0) -> Construction:
    found = constructed(Machine(), sys.executable, request(folder, *words, most=most), 60.0)
    assert isinstance(found, Construction), found
    return found


def ended(construction: Construction) -> dict[str, str]:
    return {stage.stage: stage.ended for stage in construction.stages}


def with_validation(folder: Path, body: str, most: float = 20.0) -> Construction:
    write(folder, {VALIDATION: VALIDATE.format(body)})
    return run(folder, most=most)


def test_valid_job_has_no_failing_stage(tmp_path: Path) -> None:
    write(tmp_path, {})
    found = run(tmp_path)
    states = ended(found)
    for stage in ("composition", "import", "resolution", "validation", "model", "reward manager"):
        assert states[stage] == "ok"
    assert list(found.bad(*states)) == []
    assert found.own_code == (str(tmp_path / "job" / "reward.py"),)


@pytest.mark.slow
def test_garbage_is_collected_except_during_imports(tmp_path: Path) -> None:
    body = "import gc, verl.trainer.main_ppo as program\n    assert gc.isenabled() and not program.COLLECTS\n"
    write(tmp_path, {VALIDATION: VALIDATE.format(body)})
    program = tmp_path / "site-packages" / "verl" / "trainer" / "main_ppo.py"
    program.write_text(f"import gc\nCOLLECTS = gc.isenabled()\n{program.read_text()}")
    assert ended(run(tmp_path))["validation"] == "ok"


def test_part_missing_from_the_release_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path, {})
    classes = run(tmp_path).get("configuration classes")
    assert classes is not None
    assert (classes.ended, classes.text) == ("not there", "this release has no classes of configuration")


def test_error_is_reported_with_its_line_and_dependent_stages_are_skipped(tmp_path: Path) -> None:
    found = with_validation(tmp_path, "raise ValueError('train_batch_size is 3')")
    (fault,) = found.bad("validation")
    assert (fault.kind, fault.text) == ("ValueError", "train_batch_size is 3")
    assert str(fault.frame("verl")) == f"{tmp_path}/site-packages/verl/utils/config.py:3"
    assert ended(found)["roles"] == "not reached"
    assert ended(found)["model"] == "ok"


@pytest.mark.slow
def test_bare_assertion_is_recognised_by_its_line(tmp_path: Path) -> None:
    (fault,) = with_validation(tmp_path, "assert config.trainer.logger == 3").bad("validation")
    assert fault.text == "assert config.trainer.logger == 3"


@pytest.mark.slow
def test_missing_module_imported_by_verl_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, {VALIDATION: "import nowhere_installed\n"})
    (fault,) = run(tmp_path).bad("validation")
    assert fault.text == "No module named 'nowhere_installed'"


@pytest.mark.slow
def test_hanging_stage_is_stopped_and_the_others_run(tmp_path: Path) -> None:
    found = with_validation(tmp_path, "time.sleep(1000)", most=0.5)
    assert ended(found)["validation"] == "hangs"
    assert ended(found)["reward manager"] == "ok"


@pytest.mark.slow
def test_stage_that_blocks_signals_is_killed_and_the_others_run(tmp_path: Path) -> None:
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); time.sleep(1000)"
    found = with_validation(tmp_path, deaf, most=0.5)
    assert ended(found)["validation"] == "hangs"
    assert ended(found)["reward manager"] == "ok"


@pytest.mark.slow
def test_stage_that_calls_the_gpu_driver_is_not_judged(tmp_path: Path) -> None:
    """The loader ends the process with this code when a function of the empty library is called."""
    found = with_validation(tmp_path, "os._exit(127)")
    assert ended(found)["validation"] == "not judged"
    assert ended(found)["reward manager"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["os.kill(os.getpid(), signal.SIGSEGV)", "os._exit(7)"])
def test_stage_that_crashes_is_reported_and_the_others_run(way: str, tmp_path: Path) -> None:
    found = with_validation(tmp_path, way)
    assert ended(found)["validation"] == "crashes"
    assert ended(found)["reward manager"] == "ok"
    assert [stage.stage for stage in found.bad(*ended(found))] == ["validation"]


@pytest.mark.slow
def test_system_exit_fails_its_stage(tmp_path: Path) -> None:
    (fault,) = with_validation(tmp_path, "raise SystemExit('no')").bad("validation")
    assert (fault.kind, fault.text) == ("SystemExit", "no")


def reward(folder: Path, text: str) -> tuple[str, str]:
    write(folder, {"job/reward.py": text})
    stage = run(folder, most=5).get("reward manager")
    assert stage is not None
    return stage.ended, stage.text


def test_line_in_user_code_is_reported(tmp_path: Path) -> None:
    write(tmp_path, {"job/reward.py": "x = 1\ny = x['answer']\n"})
    (fault,) = run(tmp_path).bad("reward manager")
    assert str(fault.frame("user")) == f"{tmp_path}/job/reward.py:2"
    assert fault.users


@pytest.mark.slow
def test_stage_that_writes_outside_is_blocked_and_not_judged(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("as it was")
    for text in (
        f"open('{tmp_path}/new', 'w')",
        f"open('{tmp_path}/kept', 'a')",
        f"import os; os.remove('{tmp_path}/kept')",
    ):
        state, why = reward(tmp_path, text)
        assert (state, why.startswith("it writes ")) == ("not judged", True)
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "kept").read_text() == "as it was"


@pytest.mark.slow
def test_error_after_a_blocked_write_is_not_judged(tmp_path: Path) -> None:
    text = f"try: open('{tmp_path}/new', 'w')\nexcept OSError: raise ValueError('my log')\n"
    assert reward(tmp_path, text)[0] == "not judged"


def _has_landlock() -> bool:
    return sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) >= 1


@pytest.mark.slow
@pytest.mark.skipif(not _has_landlock(), reason="this kernel has no Landlock")
def test_child_programs_cannot_write_outside(tmp_path: Path) -> None:
    state, _ = reward(tmp_path, f"import os\nos.system('echo x > {tmp_path}/new')\n")
    assert state == "ok"
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_temporary_files_are_allowed(tmp_path: Path) -> None:
    assert reward(tmp_path, "import tempfile\ntempfile.TemporaryFile().write(b'x')\n") == ("ok", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "import socket; socket.create_connection(('198.51.100.7', 80), 2)",
        "import socket; socket.getaddrinfo('rewards.example', 80)",
        "import urllib.request; urllib.request.urlopen('http://198.51.100.7/')",
    ],
)
def test_network_access_is_blocked_and_the_stage_not_judged(line: str, tmp_path: Path) -> None:
    state, why = reward(tmp_path, line)
    assert state == "not judged"
    assert "which is not done here" in why


@pytest.mark.slow
def test_no_ray_is_started(tmp_path: Path) -> None:
    state, why = reward(tmp_path, "import ray\nray.init()\n")
    assert (state, "starts no Ray" in why) == ("not judged", True)


@pytest.mark.slow
def test_folder_of_the_job_comes_first_on_the_path(tmp_path: Path) -> None:
    write(tmp_path, {"job/ray/__init__.py": "raise ImportError('shadowed')\n"})
    (fault,) = run(tmp_path).bad("import")
    assert fault.text == "shadowed"
    assert str(fault.frame("user")) == f"{tmp_path}/job/ray/__init__.py:1"


@pytest.mark.slow
def test_override_reaches_the_job(tmp_path: Path) -> None:
    write(tmp_path, {"job/mine.py": REWARD})
    found = run(tmp_path, "custom_reward_function.path=mine.py")
    assert found.own_code == (str(tmp_path / "job" / "mine.py"),)


def test_missing_interpreter_is_reported(tmp_path: Path) -> None:
    found = constructed(Machine(), str(tmp_path / "python"), {}, 5.0)
    assert isinstance(found, Unknown)
    assert "cannot be started" in found.reason


@pytest.mark.slow
def test_folder_created_in_home_is_redirected_to_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "somebody"
    home.mkdir()
    (home / "models").mkdir()
    monkeypatch.setenv("HOME", str(home))
    made = "os.mkdir(os.path.expanduser('~/.kernels')); raise ValueError(os.listdir(os.path.expanduser('~/models')), os.path.expanduser('~/x'))"
    found = with_validation(tmp_path, made).get("validation")
    assert found is not None
    assert (found.ended, found.text) == ("breaks", f"([], '{home}/x')")
    assert [path.name for path in home.iterdir()] == ["models"]
    written = "open(os.path.expanduser('~/models/x'), 'w')"
    refused = with_validation(tmp_path, written).get("validation")
    assert refused is not None
    assert refused.ended == "not judged"
    assert list((home / "models").iterdir()) == []


@pytest.mark.slow
def test_installed_packages_on_pythonpath_are_not_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    (target / "thing-1.0.dist-info").mkdir(parents=True)
    (target / "thing.py").write_text("x = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(target))
    write(tmp_path, {VALIDATION: VALIDATE.format("import thing")})
    assert run(tmp_path).own_code == (str(tmp_path / "job" / "reward.py"),)


# The validation runs the setting's code.
_BY_SETTING = (
    "code = config.custom_reward_function.path; config.custom_reward_function.path = 'reward.py'; exec(code)"
)
_DO = "custom_reward_function.path="


def in_turn(folder: Path, *does: str, limit: float = 60.0, **more: str) -> list[tuple[str, str]]:
    """Return the state of the validation and of the reward when one child builds these jobs one after the other."""
    write(folder, {VALIDATION: VALIDATE.format(_BY_SETTING)})
    states = []
    with builder(Machine(), sys.executable, request(folder), 120.0) as child:
        assert not isinstance(child, Unknown), child
        for code in does:
            found = child.build({"overrides": [f"{_DO}{code}"], **more}, limit)
            assert isinstance(found, Construction), found
            stages = ended(found)
            states.append((stages["validation"], stages.get("reward manager", "")))
    return states


@pytest.mark.slow
def test_second_job_sees_no_state_of_the_first(tmp_path: Path) -> None:
    changes = "import sys; sys.mark = 1; os.environ['MARK'] = '1'"
    looks = "import sys; assert not hasattr(sys, 'mark') and 'MARK' not in os.environ"
    wrong = "raise ValueError('no')"
    assert in_turn(tmp_path, changes, wrong, looks) == [("ok", "ok"), ("breaks", "ok"), ("ok", "ok")]


@pytest.mark.slow
def test_second_job_sees_no_files_of_the_first(tmp_path: Path) -> None:
    private = "p = os.environ['HOME'] + '/../excerpt'; assert not os.path.exists(p); os.mkdir(p)"
    assert in_turn(tmp_path, private, private) == [("ok", "ok")] * 2


@pytest.mark.slow
def test_crashing_or_hanging_job_does_not_stop_the_others(tmp_path: Path) -> None:
    crash, hang = "os.kill(os.getpid(), signal.SIGSEGV)", "time.sleep(1000)"
    assert in_turn(tmp_path, crash, "pass") == [("crashes", ""), ("ok", "ok")]
    assert in_turn(tmp_path, hang, limit=1.5) == [("hangs", "")]


def test_job_is_built_only_up_to_the_requested_stage(tmp_path: Path) -> None:
    does = "raise ValueError('no')", "pass"
    assert in_turn(tmp_path, *does, until="validation") == [("breaks", ""), ("ok", "ok")]


@pytest.mark.slow
def test_jobs_sharing_a_child_cannot_write_outside(tmp_path: Path) -> None:
    write_it = f"open('{tmp_path}/new', 'w')"
    assert in_turn(tmp_path, write_it, write_it) == [("not judged", "ok")] * 2
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_job_process_ends_with_its_child(tmp_path: Path) -> None:
    """Its children are ended too, and nothing is waited for."""
    words = ["sleep", f"1000.{os.getpid()}"]
    leaves = f"import subprocess; subprocess.Popen({words}); raise ValueError('left')"
    write(tmp_path, {VALIDATION: VALIDATE.format(_BY_SETTING)})
    with builder(Machine(), sys.executable, request(tmp_path), 120.0) as child:
        assert not isinstance(child, Unknown), child
        found = child.build({"overrides": [f"{_DO}{leaves}"]}, 60.0)
        assert isinstance(found, Construction), found
        assert [fault.text for fault in found.bad("validation")] == ["left"]
        assert _is_running(words)
    assert not _is_running(words)


def _is_running(words: list[str]) -> bool:
    """Return whether a process has this command line. Its number in a namespace of its own is another one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return "\0".join([*words, ""]).encode() in found


def test_missing_interpreter_builds_nothing(tmp_path: Path) -> None:
    with builder(Machine(), str(tmp_path / "python"), {}, 5.0) as child:
        assert isinstance(child, Unknown)
        assert "cannot be started" in child.reason
