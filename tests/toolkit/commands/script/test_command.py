"""`verl-doctor script` as a user types it: written, proven, refused, taken back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from support.miniatures.variant_verl import variant_verl
from support.running import Doctor

CALL = "python3 -m verl.trainer.main_ppo"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2"
SCRIPT = (
    f'#!/bin/bash\n{CALL} {MICRO} \\\n  data.train_batch_size=$((64 * 2)) \\\n  trainer.save_freq=999 "$@"\n'
)


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    return variant_verl(tmp_path / "site")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    script = folder / "run.sh"
    script.write_text(SCRIPT)
    script.chmod(0o750)
    return folder


@pytest.mark.slow
def test_variant_is_written_next_to_the_script_and_undone(here: Doctor, verl: Path, job: Path) -> None:
    done = here("script", "run.sh", "--debug", "--diff", "--verl", verl, cwd=job)
    assert done.returncode == 0, done.stderr
    variant = job / "run_debug.sh"
    assert stat.S_IMODE(variant.stat().st_mode) == 0o750
    assert "999 -> -1" in done.stdout
    assert "+  trainer.save_freq=-1" in done.stdout
    assert (job / "run.sh").read_text() == SCRIPT
    text = variant.read_text()
    assert "# data.train_batch_size=$((64 * 2)) \\  # verl-doctor: DEBUG\n" in text
    assert "\n  data.train_batch_size=8 \\\n" in text

    assert here("script", "run.sh", "--debug", "--verl", verl, cwd=job).returncode == 0  # the same again
    (job / "run.sh").write_text(SCRIPT.replace("999", "20"))
    assert (
        here("script", "run.sh", "--debug", "--verl", verl, cwd=job).returncode == 0
    )  # a new one over our own
    assert "# trainer.save_freq=20" in variant.read_text()
    assert here("undo", "--all", cwd=job).returncode == 0
    assert not variant.exists()


@pytest.mark.slow
def test_file_of_the_user_is_not_overwritten(here: Doctor, verl: Path, job: Path) -> None:
    (job / "run_debug.sh").write_text("mine\n")
    done = here("script", "run.sh", "--debug", "--verl", verl, cwd=job)
    assert (done.returncode, (job / "run_debug.sh").read_text()) == (2, "mine\n")
    assert "--output" in done.stderr


@pytest.mark.slow
def test_link_or_pipe_in_the_place_of_the_variant_is_left(here: Doctor, verl: Path, job: Path) -> None:
    (job / "other").write_text("mine\n")
    (job / "run_debug.sh").symlink_to("other")
    done = here("script", "run.sh", "--debug", "--verl", verl, cwd=job)
    assert (done.returncode, (job / "other").read_text()) == (2, "mine\n")
    assert "is not a regular file" in done.stderr


@pytest.mark.slow
def test_edited_variant_is_not_overwritten(here: Doctor, verl: Path, job: Path) -> None:
    assert here("script", "run.sh", "--fast-load", "--verl", verl, cwd=job).returncode == 0
    with (job / "run_fast_load.sh").open("a") as file:
        file.write("echo mine\n")
    (job / "run.sh").write_text(SCRIPT + "echo more\n")
    done = here("script", "run.sh", "--fast-load", "--verl", verl, cwd=job)
    assert done.returncode == 2
    assert (job / "run_fast_load.sh").read_text().endswith("echo mine\n")


@pytest.mark.slow
def test_variant_can_be_written_to_stdout(here: Doctor, verl: Path, job: Path) -> None:
    done = here("script", "run.sh", "--debug", "--output", "-", "--verl", verl, cwd=job)
    assert done.stdout.startswith("#!/bin/bash\n# DEBUG variant of run.sh")
    assert "999 -> -1" in done.stderr
    assert not (job / "run_debug.sh").exists()


@pytest.mark.slow
def test_marker_word_comes_from_the_configuration(here: Doctor, verl: Path, job: Path) -> None:
    (job / "verl-doctor.toml").write_text('marker = "Uky"\n')
    assert here("script", "run.sh", "--debug", "--verl", verl, cwd=job).returncode == 0
    assert "# Uky: DEBUG" in (job / "run_debug.sh").read_text()


@pytest.mark.slow
def test_arguments_passed_to_the_script_are_overridden(here: Doctor, verl: Path, job: Path) -> None:
    done = here("script", "run.sh", "--debug", "--verl", verl, "trainer.resume_mode=resume_path", cwd=job)
    assert done.returncode == 0, done.stderr
    assert '"$@" ' in (job / "run_debug.sh").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'A="{CALL} {MICRO}"\neval "$A; echo done"\n', "write the command in the script"),
        ("bash other.sh\n", "other.sh"),
        (f"{CALL} {MICRO}\r\n", "sed -i"),
        ("echo nothing\n", "contains no command that starts verl"),
        (f'srun bash -c "cd $X && {CALL}"\n', "is unknown"),
        (f"{CALL} {MICRO} trainer.nope=1\n", "trainer.nope=1 (run.sh:1)"),
    ],
)
def test_impossible_request_prints_one_sentence(
    here: Doctor, verl: Path, job: Path, text: str, message: str
) -> None:
    (job / "other.sh").write_text(f"{CALL} {MICRO}\n")
    (job / "run.sh").write_bytes(text.encode())
    done = here("script", "run.sh", "--debug", "--verl", verl, cwd=job)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    assert message in done.stderr
    assert not (job / "run_debug.sh").exists()


@pytest.mark.slow
def test_command_for_a_script_that_would_not_start_can_be_pasted(here: Doctor, verl: Path, job: Path) -> None:
    (job / "my run.sh").write_text(f"{CALL} data.trian_batch_size=8\n")
    done = here("script", "my run.sh", "--debug", "--verl", verl, cwd=job)
    assert done.stderr.rstrip().endswith(f"run verl-doctor check --verl {verl} '{job}/my run.sh'")


@pytest.mark.slow
def test_existing_faults_are_reported(here: Doctor, verl: Path, job: Path) -> None:
    (job / "run.sh").write_text(f"{CALL} trainer.save_freq=9\n")
    done = here("script", "run.sh", "--debug", "--verl", verl, cwd=job)
    assert done.returncode == 0
    assert "CFG104" not in done.stdout
    (job / "run.sh").write_text(f"{CALL} {MICRO} \\\n  # trainer.nnodes=2 \\\n  trainer.save_freq=9\n")
    done = here("script", "run.sh", "--debug", "--verl", verl, cwd=job)
    assert "CFG104, as in the script itself" in done.stdout


@pytest.mark.slow
def test_invalid_utf8_is_preserved(here: Doctor, verl: Path, job: Path) -> None:
    (job / "run.sh").write_bytes(b"export A=\xff  # \xe9\n" + SCRIPT.encode())
    assert here("script", "run.sh", "--debug", "--verl", verl, cwd=job).returncode == 0
    assert b"export A=\xff  # \xe9\n" in (job / "run_debug.sh").read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run.sh",),
        ("run.sh", "--debug", "--fast-load"),
        ("run.sh", "--fast-load", "--one-node"),
        ("run.sh", "--debug", "--tiny", "nowhere"),
        ("run.sh", "--debug", "--output", "run.sh"),
        ("--debug",),
        ("main.py", "--debug"),
    ],
)
def test_usage_errors(here: Doctor, verl: Path, job: Path, arguments: tuple[str, ...]) -> None:
    (job / "main.py").write_text("print(1)\n")
    done = here("script", *arguments, "--verl", verl, cwd=job)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
