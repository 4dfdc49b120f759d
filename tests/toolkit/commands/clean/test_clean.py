"""`verl-doctor clean`: output, removal and journal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.left_behind import dead_socket, leftovers, machine, session
from support.running import inside
from support.schemas import validate

from verl_doctor.toolkit.changes import apply, lock
from verl_doctor.toolkit.commands.clean import clean as clean_command
from verl_doctor.toolkit.commands.clean import command, path
from verl_doctor.toolkit.commands.clean.clean import Cleaned, Found
from verl_doctor.toolkit.commands.clean.document import document, headline
from verl_doctor.toolkit.commands.clean.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.leftover import EndProcess, Kept, Leftover, Outcome, RemovePath
from verl_doctor.toolkit.machine import Machine

__all__ = ["machine"]

FOLDER = Leftover(
    "session folder",
    "/tmp/ray/session_1",
    ("process 7 has ended", "nobody is bound to its 3 sockets"),
    RemovePath("/tmp/ray/session_1", 1, 2, 3),
    size=5_000_000,
    age=300.0,
)
SOCKETS = [
    Leftover(
        "socket",
        f"/tmp/{number}.sock",
        ("nobody is bound to it",),
        RemovePath(f"/tmp/{number}.sock", 1, number, 3),
    )
    for number in range(30)
]
ENGINE = Leftover(
    "process", "VLLM::EngineCore (7)", ("its parent has ended",), EndProcess(7, 8), 15 << 30, "GPU memory"
)
LIVE = Kept("session folder", "/tmp/ray/session_2", "raylet (process 9) has it open", 1000)


def lines(cleaned: Cleaned, width: int | None = 80, *, verbose: bool = False) -> list[str]:
    return [line.plain for line in text_lines(cleaned, width, verbose=verbose)]


@pytest.fixture
def clean(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """The command, on a machine of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(
        command, "open_session", lambda options: replace(open_session(options), machine=machine)
    )

    def run(*words: str):
        return inside("clean", *words, cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd)

    return run


def test_clean_machine_gets_one_line():
    assert lines(Cleaned(Found())) == ["CLEAN  nothing is left over from dead jobs"]
    assert lines(Cleaned(Found(kept=(LIVE,)))) == [
        "CLEAN  nothing is left over from dead jobs; 1 item examined and kept"
    ]


def test_each_leftover_is_shown_with_its_proof_and_size():
    shown = lines(Cleaned(Found((FOLDER, ENGINE), (LIVE,))))
    whole = " ".join(line.strip() for line in shown)
    assert whole.startswith(
        "LEFT OVER  1 process and 1 session folder, which take 15.0 GiB of GPU memory and 4.8 MiB of disk "
    )
    assert "  /tmp/ray/session_1 (session folder, 4.8 MiB)" in shown
    assert "    process 7 has ended; nobody is bound to its 3 sockets" in shown
    assert any(line.startswith("  kept: /tmp/ray/session_2") for line in shown)
    assert any(line.startswith("run verl-doctor clean --apply to remove them") for line in shown)


def test_many_leftovers_of_one_kind_are_counted_unless_verbose():
    everything = Cleaned(Found((FOLDER, *SOCKETS)))
    assert len(lines(everything)) < 20
    assert "25 more sockets" in "\n".join(lines(everything))
    assert all(any(socket.name in line for line in lines(everything, verbose=True)) for socket in SOCKETS)


@pytest.mark.parametrize("verbose", [True, False])
def test_lines_fit_the_terminal(verbose):
    cleaned = Cleaned(
        Found((FOLDER, ENGINE, *SOCKETS), (LIVE,), (("RayLeftovers", "the cluster does not answer"),))
    )
    assert max(map(len, lines(cleaned, 80, verbose=verbose))) <= 80


def test_escapes_in_paths_are_neutralised():
    bad = Kept("socket", "/tmp/\x1b[31m\n", "because\u202e", None)
    shown = lines(Cleaned(Found((FOLDER,), (bad,))), verbose=True)
    assert "\x1b" not in "".join(shown)
    assert "\\x1b[31m\\n" in "\n".join(shown)


@pytest.mark.parametrize(
    ("cleaned", "word", "code"),
    [
        (Cleaned(Found()), "CLEAN", 0),
        (Cleaned(Found((FOLDER,))), "LEFT OVER", 1),
        (Cleaned(Found(unknown=(("RayLeftovers", "no answer"),))), "UNKNOWN", 3),
        (Cleaned(Found((FOLDER,)), (Outcome(FOLDER, "removed"),)), "REMOVED", 0),
        (Cleaned(Found((FOLDER,)), (Outcome(FOLDER, "kept", "it is in use"),)), "NOT ALL", 1),
        (Cleaned(Found(), ()), "CLEAN", 0),
    ],
)
def test_headline_and_exit_code(cleaned, word, code):
    assert headline(cleaned)[0] == word
    assert cleaned.exit_code() == code
    validate(json.loads(json.dumps(document(cleaned))), schema_text("clean"))
    assert next(iter(markdown_lines(cleaned))) == f"## verl-doctor clean: {word.lower()}"


@pytest.mark.slow
def test_nothing_changes_without_apply(clean, machine):
    folder = session(machine)
    done = clean()
    assert done.returncode == 1
    assert folder.name in done.stdout
    assert (folder / "logs" / "raylet.out").exists()


def test_apply_removes_leftovers_and_writes_to_the_journal(clean, machine, tmp_path):
    folder = session(machine)
    done = clean("--apply", "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [leftover["state"] for leftover in report["leftovers"]] == ["removed"]
    assert not folder.exists()
    home = tmp_path / "state" / "verl-doctor" / "journal"
    (transaction,) = apply.history(home)
    assert (transaction.state, transaction.fix) == ("applied", "clean")
    assert transaction.changes[0].description == f"session folder /tmp/ray/{folder.name}: removed"
    assert transaction.changes[0].now == "cannot be undone"
    with pytest.raises(apply.Refused, match="removed leftovers of dead jobs, which cannot be undone"):
        apply.undo(home)
    assert clean("--apply").returncode == 0


@pytest.mark.slow
def test_unwritable_journal_does_not_prevent_removal(clean, machine, tmp_path):
    folder = session(machine)
    (tmp_path / "state").write_text("no folder")
    done = clean("--apply")
    assert done.returncode == 0
    assert "the journal has no complete record" in done.stdout
    assert not folder.exists()


def test_killed_cleanup_is_recorded_in_the_journal(clean, machine, tmp_path, monkeypatch):
    session(machine)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(path, "erase", killed)
    with pytest.raises(KeyboardInterrupt):
        clean_command.remove_all(
            lambda: Found(leftovers(machine).found), machine, tmp_path / "journal", print
        )
    (transaction,) = apply.history(tmp_path / "journal")
    assert transaction.state == "interrupted"
    assert transaction.changes[0].description.endswith(": its removal was not completed")
    apply.recover(tmp_path / "journal")
    assert [run.state for run in apply.history(tmp_path / "journal")] == ["failed"]


@pytest.mark.slow
def test_second_simultaneous_cleanup_is_refused(clean, machine, tmp_path, monkeypatch):
    folder = session(machine)
    home = tmp_path / "state" / "verl-doctor" / "journal"
    home.mkdir(parents=True)
    monkeypatch.setattr("verl_doctor.toolkit.changes.lock.TIMEOUT", 0.0)
    with lock.exclusive(home, 0.0):
        done = clean("--apply")
    assert done.returncode == 2
    assert "in use" in done.stderr
    assert folder.exists()


@pytest.mark.slow
def test_kinds_and_age_restrict_the_removal(clean, machine):
    folder = session(machine)
    sock = dead_socket(machine.at("/tmp") / "rl-colocate-zmq-1.sock")
    assert clean("--apply", "--only", "socket").returncode == 0
    assert folder.exists()
    assert not sock.exists()
    assert clean("--apply", "--older-than", "1h").returncode == 0
    assert folder.exists()


@pytest.mark.parametrize("words", [("--only", "sockets"), ("--older-than", "soon"), ("--only", ",")])
def test_unknown_kind_or_invalid_age_is_a_usage_error(clean, words):
    done = clean(*words)
    assert done.returncode == 2
    assert "for instance" in done.stderr or "unknown kind" in done.stderr
