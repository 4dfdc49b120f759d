"""A file without a failure is good news only if it is a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.logs.builder import NOISE

from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.sources import sources_of

SCRIPT = "#!/bin/bash\nset -x\npython3 -m verl.trainer.main_ppo trainer.logger=console  # ERROR: see HCCL_CONNECT_TIMEOUT\n"
NO_STEP = "these logs show no failure; they show no training step and no end"


def judged(folder: Path, **files: str) -> Answer:
    """Return the diagnosis of files with these contents, `_` standing for the dot in their names."""
    paths = [folder / name.replace("_", ".") for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_text(text, "utf-8")
    return diagnose(sources_of(map(str, paths)))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("run_sh", SCRIPT, "shell script"),
        ("run", SCRIPT, "shell script"),
        ("job_slurm", "#SBATCH --nodes=2\nsrun python train.py\n", "shell script"),
        ("run_sh", "python3 train.py\n", "shell script"),
        ("tool", "#!/usr/bin/env python3\nimport torch\n", "script"),
        ("train_py", "import torch\nraise ValueError('CUDA out of memory')\n", "script"),
        ("config_yaml", "trainer:\n  nnodes: 1\n", "configuration file"),
        ("junk_txt", "hello\n", "unknown"),
        pytest.param("junk_txt", "\n" * 60 + "hello\n", "unknown", id="lines of nothing take no time"),
        ("run_log", "+ set -e\n++ ls saved\n++ grep step_\n+ LAST=\n", "trace"),
        ("run_log", "+ mkdir -p out\n+ (( i++ ))\n", "trace"),
    ],
)
def test_file_that_is_no_log_is_not_judged(tmp_path: Path, name: str, text: str, kind: str) -> None:
    answer = judged(tmp_path, **{name: text})
    assert list(answer.other_files.values()) == [kind]
    word, sentence = headline(answer)
    assert (word, answer.exit_code, answer.verdict) == (
        "NOT DETERMINED",
        ExitCode.COULD_NOT_CHECK,
        "not_determined",
    )
    path = tmp_path / name.replace("_", ".")
    assert (f": verl-doctor check {path} judges it" in sentence) == (kind == "shell script")
    assert str(path) in sentence


@pytest.mark.parametrize(
    "text",
    [
        ":job_id:01000000\n:actor_name:SimpleStorageUnit\n",
        "======== Running on http://192.0.2.2:45285 ========\n(Press CTRL+C to quit)\n",
        "+ python3 -m verl.trainer.main_ppo\n",
        "+ mkdir -p out\n+ exec /env/bin/python -m verl.trainer.main_ppo\n",
        "+ mkdir -p out\nINFO ready\n",
        "[2026-11-20 10:00:00,100 I 12 12] (raylet) main.cc:196: started\n",
        "srun: job 4242 queued and waiting for resources\n",
        "Loading checkpoint shards: 100%|##########| 2/2 [00:01<00:00,  1.5it/s]\n",
        f"{SCRIPT}+ python3 -m verl.trainer.main_ppo\n",
        "WARNING: something is slow\n",
    ],
)
def test_quiet_log_without_a_step_is_ok(tmp_path: Path, text: str) -> None:
    answer = judged(tmp_path, node_log=text)
    assert (headline(answer), answer.exit_code) == (("OK", NO_STEP), ExitCode.OK)


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.",
        "srun: error: node01: task 0: Out Of Memory",
        "slurmstepd: error: *** JOB 123 ON node01 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***",
        "/usr/bin/python3: No module named verl",
        "python3: can't open file '/job/x.py': [Errno 2] No such file or directory",
        "cp: cannot create regular file '/data/x': No space left on device",
        "Bus error (core dumped)",
    ],
)
@pytest.mark.parametrize("name", ["job_log", "job_slurm"])
def test_script_before_the_complaint_of_a_program_hides_nothing(tmp_path: Path, name: str, line: str) -> None:
    """Schedulers and `cat $0` print the script first."""
    answer = judged(tmp_path, **{name: f"{SCRIPT}{line}\n"})
    assert answer.exit_code == ExitCode.FAILED, headline(answer)


def test_log_with_a_step_shows_no_failure(tmp_path: Path) -> None:
    assert headline(judged(tmp_path, run_log=NOISE)) == ("OK", "these logs show no failure")


def test_script_and_empty_file_beside_a_log_change_nothing(tmp_path: Path) -> None:
    answer = judged(tmp_path, run_log=NOISE, run_err="", run_sh=SCRIPT)
    assert headline(answer) == ("OK", "these logs show no failure")
    assert answer.notes == (f"{tmp_path / 'run.sh'} is a shell script, not a log",)
    assert judged(tmp_path, junk_txt="hello\n", run_log=NOISE).exit_code == ExitCode.OK
