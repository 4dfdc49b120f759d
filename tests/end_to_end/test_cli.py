"""The command line as a newcomer meets it: help, wrong input, documentation, the demonstration."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from support.places import TESTS
from support.running import Doctor, doctor

from verl_doctor.toolkit.cli.main import cli, main
from verl_doctor.toolkit.engine import registry

ROOT = TESTS
COMMANDS = cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("words", [(), ("help",), ("--help",)])
def test_no_command_prints_the_help(here: Doctor, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = here(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [name for name in COMMANDS if f"\n  {name} " in done.stdout]
    assert listed == sorted(cli.visible())
    assert len(listed) <= 18
    assert "\\n" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    first = done.stdout.partition("Start here:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == ["check", "fix", "undo", "logs"]


@pytest.mark.parametrize("group", ["patches", "sites"])
def test_group_without_a_command_prints_its_help(here: Doctor, tmp_path: Path, group: str) -> None:
    done = here(group, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == here("help", group, cwd=tmp_path).stdout
    assert f"Usage: verl-doctor {group} [OPTIONS] COMMAND [ARGS]...\n" in done.stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("rules",), ("explain", "--list")),
        (("plugins",), ("explain", "--plugins")),
        (("schema",), ("explain", "--schema")),
        (("schema", "logs"), ("explain", "--schema", "logs")),
        (("completion", "zsh"), ("explain", "--completion", "zsh")),
        (("environment", "run.sh"), ("explain", "variables", "run.sh")),
        (("environment", "run.sh", "--all"), ("explain", "variables", "run.sh", "-v")),
        (
            ("check", "--vllm", "vllm", "--select", "PY100"),
            ("check", "--tree", "vllm=vllm", "--select", "PY100"),
        ),
    ],
)
def test_spellings_of_0_1_0_work_and_suggest_new_ones_on_stderr(
    here: Doctor, tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    (tmp_path / "run.sh").write_text("export NCCL_DEBUG=INFO\npython3 -m verl.trainer.main_ppo\n")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    before, after = here(*old, cwd=tmp_path), here(*new, cwd=tmp_path)
    seconds = re.compile(r"\d\.\d s$", re.MULTILINE)
    assert seconds.sub("", before.stdout) == seconds.sub("", after.stdout)
    assert before.returncode == after.returncode
    assert "verl-doctor: hint: `" in before.stderr
    assert "hint" not in after.stderr


@pytest.mark.slow
def test_launch_file_in_place_of_a_command_is_checked(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("python3 -m verl.trainer.main_ppo\n")
    done = here("job", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["target"]["arguments"] == [str(tmp_path / "job")]
    assert "nowhere.sh: no such file" in here("nowhere.sh", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("chekc", "check"), ("Check", "check"), ("undoo", "undo"), ("log", "logs"), ("env", ""), ("xyzzy", "")],
)
def test_misspelled_command_gets_a_suggestion(here: Doctor, tmp_path: Path, typed: str, meant: str) -> None:
    done = here(typed, cwd=tmp_path)
    assert done.returncode == 2
    assert f"No such command '{typed}'" in done.stderr
    assert ("did you mean" in done.stderr) == bool(meant)
    assert meant in done.stderr


@pytest.mark.parametrize("command", ["check", "logs", "compare", "clean", "watch", "smoke", "checklist"])
def test_options_of_the_same_name_have_the_same_meaning(command: str) -> None:
    loaded = cli.get_command(click.Context(cli), command)
    assert loaded is not None
    named = {name: option for option in loaded.params for name in option.opts}
    assert {"-v", "-q", "--json", "--format", "--output"} <= set(named)


@pytest.mark.slow
def test_quiet_prints_only_the_verdict(here: Doctor, tmp_path: Path) -> None:
    done = here("check", "-q", cwd=tmp_path)
    assert done.stdout.startswith("NOT CHECKED  ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    wrong = here("check", "-q", "--json", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(here: Doctor, tmp_path: Path, command: str) -> None:
    done = here(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage: verl-doctor" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["chekc"], "No such command"),
        (
            ["check", "--pyton", "x"],
            "No such option '--pyton'; did you mean --python? See: verl-doctor check --help",
        ),
        (["check", "--zzz"], "No such option '--zzz'; see: verl-doctor check --help"),
        (["check", "--python", "nowhere/python"], "no such file"),
        (["check", "--python", "."], "contains no bin/python"),
        (["check", "--verl", "nowhere"], "no such folder"),
        (["check", "--verl", "."], "not a verl tree"),
        (["check", "--tree", "vllm=."], "not a vllm tree"),
        (["check", "--select", "NOPE"], "unknown rule or family NOPE"),
        (["check", "--facts", "nowhere.json"], "cannot be read"),
        (["check", "--facts", "broken.json"], "is not a facts file"),
        (["check", "--facts", "old.json"], "schema version 0"),
        (["check", "--facts", "damaged.json"], "is damaged"),
        (["check", "--format", "xml"], "Invalid value"),
        (["check", "--output", "no/such/folder/file"], "cannot be written"),
        (["check", "--save-facts", "no/such/folder/file"], "cannot be written: the folder"),
        (["check", "--save-facts", "/proc/x"], "cannot be written: /proc is the kernel's own"),
        (["actors", "--output", "."], "is a folder; name a file in it"),
        (["check", "--python", ""], "is a variable unset?"),
        (["check", "--verl", ""], "is a variable unset?"),
        (["check", "--verl", "broken.json"], "it is a file, not a folder"),
        (["check", "--verl", "verl.whl"], "unpack the wheel first"),
        (["check", "--select", ""], "it does not name a rule"),
        (["check", "--select", "VLLM", "--ignore", "VLLM"], "no rule is left to run"),
        (["check", "--facts", "old.json", "--python", sys.executable], "can be named with it"),
        (["fix", "--unsafe"], "--unsafe needs --apply"),
        (["undo", "7", "--all"], "choose one of ID, --list and --all"),
        (["explain", "NOPE999"], "unknown rule or topic NOPE999"),
        (["explain", "cfg101x"], "did you mean CFG101?"),
        (["explain", "variable"], "did you mean variables?"),
        (["explain", "VLLM999"], "explain VLLM for those of that family"),
        (["check", "a.sh", "b.sh"], "a.sh: no such file"),
        (["explain", "card", "more"], "remove more"),
        (["explain", "--completion", "tcsh"], "Invalid value"),
    ],
)
def test_wrong_input_gets_one_sentence_and_exit_code_2(
    here: Doctor, tmp_path: Path, arguments: list[str], output: str
) -> None:
    (tmp_path / "broken.json").write_bytes(b"\xff\x00{")
    (tmp_path / "verl.whl").touch()
    (tmp_path / "old.json").write_text('{"schema_version": 0, "facts": {}}')
    (tmp_path / "damaged.json").write_text(
        '{"schema_version": 1, "facts": {"Interpreter": {"is": {"version": 3}}}}'
    )
    done = here(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert output in done.stderr
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("verl-doctor 0")]
    assert len(sentences) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_broken_configuration_is_named(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").write_text("selct = 3")
    done = here("check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown key 'selct'" in done.stderr


def test_configuration_that_is_not_a_file_is_named(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "verl-doctor.toml").mkdir()
    done = here("check", cwd=tmp_path)
    assert done.returncode == 2
    assert "verl-doctor.toml is not a readable configuration file" in done.stderr


@pytest.mark.slow
def test_missing_active_environment_is_reported(here: Doctor, tmp_path: Path) -> None:
    done = here("check", "--select", "PY100", cwd=tmp_path, VIRTUAL_ENV="/nowhere")
    assert "VIRTUAL_ENV=/nowhere is set, but /nowhere/bin/python" in done.stderr
    output = here("check", "--select", "PY100", "--format", "json", cwd=tmp_path, VIRTUAL_ENV="/nowhere")
    assert "VIRTUAL_ENV=/nowhere" in json.loads(output.stdout)["target"]["passed_over"]


@pytest.mark.slow
def test_interpreter_can_be_named_as_on_path(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "python9").symlink_to(sys.executable)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = here("check", "--select", "PY100", "--python", "python9", cwd=ROOT, PATH=path)
    assert done.returncode == 0
    assert f"{tmp_path}/python9" in done.stderr


def test_unjudged_rules_do_not_count_as_success(here: Doctor, tmp_path: Path) -> None:
    done = here("check", "--select", "PKG104", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith("NOT CHECKED  nothing was checked: needs --deep")
    fixed = here("fix", "--select", "PY100", cwd=tmp_path)
    assert fixed.stdout.startswith("NOTHING TO REPAIR  nothing wrong found by 1 rule")


def test_undo_with_an_empty_journal_prints_one_sentence(here: Doctor, tmp_path: Path) -> None:
    done = here("undo", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 0
    assert "nothing to undo" in done.stderr


@pytest.mark.slow
def test_machine_without_verl_is_judged_as_far_as_possible(tmp_path: Path) -> None:
    done = doctor("check", cwd=tmp_path)
    assert done.returncode == 3
    assert "no verl was found" in done.stdout
    assert "--python" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
def test_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m verl_doctor.toolkit explain --list | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.stderr == ""


@pytest.mark.usefixtures("index_at_hand")
@pytest.mark.slow
def test_closed_pipe_exits_as_with_sigpipe(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "verl_doctor.toolkit", "logs", "run.log"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, check=False, cwd=tmp_path, timeout=300
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.slow
def test_stdout_is_exactly_one_json_document(here: Doctor, tmp_path: Path) -> None:
    for ask, command in ((doctor, "check"), (here, "fix")):
        assert json.loads(ask(command, "--format", "json", cwd=tmp_path).stdout)["schema_version"] == 1


@pytest.mark.slow
def test_output_is_written_to_the_named_file(here: Doctor, tmp_path: Path) -> None:
    done = here("check", "--format", "json", "--output", "said.json", cwd=tmp_path)
    assert done.stdout == ""
    assert json.loads((tmp_path / "said.json").read_text())["verdict"]


def test_schema_is_json(here: Doctor, tmp_path: Path) -> None:
    assert json.loads(here("explain", "--schema", cwd=tmp_path).stdout)["title"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_shell_script(here: Doctor, tmp_path: Path, shell: str) -> None:
    done = here("explain", "--completion", shell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "_VERL_DOCTOR_COMPLETE" in done.stdout


@pytest.mark.slow
def test_every_rule_can_be_explained(here: Doctor, tmp_path: Path) -> None:
    listed = here("explain", "--list", cwd=tmp_path).stdout.splitlines()
    of_rules = [code for line in listed if not (code := line.split("\t")[0]).startswith("LOG")]
    assert of_rules == [check.code for check in registry.load().checks]
    family = [line for line in listed if line.startswith("VLLM")]
    assert here("explain", "vllm", cwd=tmp_path).stdout.splitlines() == family != []
    page = here("explain", "vllm101", cwd=tmp_path).stdout
    assert "## Why it matters" in page
    assert "vllm-log-requests" in page


@pytest.mark.slow
def test_demo_shows_the_loop_and_leaves_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    done = doctor("demo", cwd=tmp_path, TMPDIR=str(tmp_path))
    print(f"demo took {time.monotonic() - started:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("FAIL", "# verl-doctor: VLLM101", "repaired", "undone"):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_any_command_cleanly_despite_a_second_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    cleaned = []

    def interrupted(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            cleaned.append(True)

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["check"])
    assert (ended.value.code, cleaned) == (code, [True])
    assert capsys.readouterr().err.startswith("verl-doctor: stopped;")


def test_interruption_inside_a_class_body_is_not_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before Python 3.12, an exception in __set_name__ is raised as RuntimeError: SIGTERM while modules are loaded."""

    def stopped(*_: object, **__: object) -> None:
        raise RuntimeError("Error calling __set_name__ on 'x'") from KeyboardInterrupt()

    monkeypatch.setattr(cli, "main", stopped)
    with pytest.raises(SystemExit) as ended:
        main(["check"])
    assert ended.value.code == 130
    assert capsys.readouterr().err.startswith("verl-doctor: stopped;")
