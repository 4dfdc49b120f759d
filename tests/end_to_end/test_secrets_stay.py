"""No secret leaves: several hundred are planted, and every byte that the commands write is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machine_facts import MACHINES
from support.planted import Planter, files, log, script, variables
from support.running import Doctor

from verl_doctor.toolkit.commands.demo.demo import build
from verl_doctor.toolkit.console.masked import mask_of
from verl_doctor.toolkit.render.render import ReportAnswer
from verl_doctor.toolkit.result import CheckResult, Repair, Report
from verl_doctor.toolkit.rule import Evidence, Finding, Location
from verl_doctor.toolkit.system.secret import without_secrets

JOB = ("run.sh", "env.yaml", "Dockerfile")
COMMANDS = (
    *(("check", *JOB, "-v", "--format", form) for form in ("text", "json", "markdown", "junit", "sarif", "github")),
    ("check", *JOB, "--save-facts", "facts.json"),
    *(("fix", *JOB, "--output-env", "envs", "--format", form) for form in ("text", "json", "markdown")),
    ("fix", "--apply", *JOB, "--output-env", "envs", "-v"),
    *(("environment", "run.sh", "--all", "--format", form) for form in ("text", "json", "markdown")),
    ("report", "run.sh", "--log", "run.log", "--html", "page.html", "--output", "page.md"),
    ("report", "run.sh", "--log", "run.log", "--full"),
    ("snapshot", "kept.json", "run.sh"),
    ("compare", "kept.json", "run.sh", "--all", "--format", "json"),
    ("checklist", "run.sh", "--from", "kept.json"),
    ("guard", "--agree", "--lock", "agreed.json"),
    ("undo", "--list"),
    ("patches", "list"),
)  # fmt: skip
REST = (
    ("script", "run.sh", "--debug"), ("script", "run.sh", "--fast-load"),
    ("clean",), ("clean", "--json"), ("actors",), ("sites",), ("demo",), ("tiny", "tiny"),
    ("explain", "variables", "run.sh"), ("explain", "--list"), ("warmup", "run.sh"), ("watch", "run.sh", "--for", "2s"),
    ("smoke", "--rung", "1", "--cpu", "run.sh"), ("smoke", "--rung", "1", "--cpu", "--json", "run.sh"),
    ("guard", "--lock", "agreed.json"), ("patches", "verify"), ("check", "--each", "run.sh"), ("undo", "--all"),
)  # fmt: skip
"""The other commands."""
WITHOUT_TARGET = {"logs", "undo", "clean", "actors", "sites", "demo"}
LOGS = tuple(("logs", "run.log", "--format", form) for form in ("text", "json", "markdown"))
OURS = ("facts.json", "page.html", "page.md", "kept.json", "agreed.json")


@pytest.mark.slow
def test_planted_secrets_are_not_output(here: Doctor, tmp_path: Path, private_home: Path) -> None:
    plant = Planter()
    python = build(tmp_path / "environment") / "bin/python"
    job = tmp_path / "job"
    job.mkdir()
    (job / "run.sh").write_text(script(plant))
    (job / "run.log").write_text(log(plant))
    files(plant, job)
    environ = variables(plant)
    assert len(plant.secrets) >= 300
    leaks: dict[str, list[str]] = {}
    answered = 0
    for words in (*COMMANDS, *LOGS, *REST):
        target = () if words[0] in WITHOUT_TARGET or "--list" in words else ("--python", python)
        done = here(*words, *target, cwd=job, **environ)
        assert (
            "Traceback" not in done.stderr.replace("Traceback (most recent call last):", "", 1)
            or words[0] == "logs"
        )
        answered += done.returncode != 2
        if seen := plant.seen_in((done.stdout + done.stderr).encode()):
            leaks[" ".join(map(str, words))] = seen
    for file in _written(job, private_home):
        if seen := plant.seen_in(file.read_bytes()):
            leaks[str(file)] = seen
    assert leaks == {}, leaks
    assert answered == len(COMMANDS) + len(LOGS) + len(REST)
    assert all((job / name).is_file() for name in OURS)


def _written(job: Path, home: Path) -> Iterator[Path]:
    """Files written by the doctor: requested, in the folder of environment files, and in its own caches and state.

    What the journal keeps of the user's files, before and after a change, is what `undo` restores.
    """
    yield from (
        path for path in home.rglob("*") if path.is_file() and path.suffix not in {".before", ".after"}
    )
    yield from (job / name for name in OURS if (job / name).is_file())
    yield from (path for path in (job / "envs").rglob("*") if path.is_file())


def test_sarif_fix_never_replaces_a_secret_by_a_mask() -> None:
    """A secret in a line that would be replaced, or kept as a comment: the finding stays, the fix is not offered."""
    finding = Finding(
        "m", Evidence("a", "b", "c"), severity="error", location=Location("/j/run.sh", 1), fix="f"
    )
    for line, offered in (("export X=1  # pw=Hunter2xyz", False), ("export X=1  # a note", True)):
        diff = f"--- a/j/run.sh\n+++ b/j/run.sh\n@@ -1 +1,2 @@\n-{line}\n+# {line}\n+export X=2\n"
        repair = Repair("f", "ENV101", "t", "safe", "planned", diff=diff)
        target = {"python": "p", "arguments": []}
        report = Report(target, (CheckResult("ENV101", "t", "fail", findings=(finding,)),), repairs=(repair,))
        written = ReportAnswer(report).other_forms()["sarif"]()
        assert ("insertedContent" in written) == offered
        assert "Hunter2" not in written


@pytest.mark.parametrize("machine", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_facts_of_real_machines_keep_their_lines(machine: Path) -> None:
    document = json.loads(machine.read_text())
    assert mask_of({}).document(document) == document


@pytest.mark.slow
def test_human_readable_output_keeps_nearly_all_of_its_lines(here: Doctor, tmp_path: Path) -> None:
    h200 = MACHINES / "h200-with-job.json"
    texts = [
        here("check", "--facts", h200, "-v", "--format", form, cwd=tmp_path).stdout
        for form in ("text", "json", "markdown")
    ]
    texts += [here("report", "--facts", h200, cwd=tmp_path).stdout, REAL_LOG * 50]
    for text in texts:
        lines = [line for line in text.split("\n") if line.strip()]
        kept = [line for line in lines if without_secrets(line) == line and "***" not in line]
        assert len(kept) >= 0.98 * len(lines), sorted({line for line in lines if line not in kept})[:20]


REAL_LOG = """\
(TaskRunner pid=4111) {'actor_rollout_ref': {'actor': {'ppo_max_token_len_per_gpu': 16384, 'use_dynamic_bsz': True}}}
(TaskRunner pid=4111) 'data': {'prompt_key': 'prompt', 'reward_fn_key': 'data_source', 'tokenizer': None, 'max_prompt_length': 512}
(WorkerDict pid=5120) INFO 11-20 12:00:00 [config.py:700] max_num_batched_tokens=8192, pad_token_id=151643, pin_memory=True
(EngineCore pid=6001) INFO 11-20 12:00:01 [core.py:77] kv_cache_dtype=auto, tokenizer='/models/Qwen', tokenizer_mode=auto, seed=0
Training Progress:  10%|# | 3/30 [01:12<10:48, 24.02s/it]
step:3 - actor/entropy:0.41 - perf/total_num_tokens:81920 - timing_per_token_ms/gen:0.05 - val/pass@1:0.5 - critic/keys: 4
KeyError: 'model.layers.0.self_attn.k_proj.weight'
  File "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 630, in __next__
NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
[rank0]:[W1120 12:00:00.123456789 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not called
generate 128 tokens: 12.5 tok/s, first token: 0.3 s, PASS: 12, pass_rate: 0.5, monkey: 3, forward_pass: 1
"""
