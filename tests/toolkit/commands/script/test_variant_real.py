"""Variants for released verl: real bash passes the overrides, real Hydra composes them, and only the intended values differ."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.real_hydra.asked import asked
from support.trying import thorough

from verl_doctor.toolkit.commands.script.debug import debug
from verl_doctor.toolkit.commands.script.fast_load import fast_load
from verl_doctor.toolkit.commands.script.make import Made, make
from verl_doctor.toolkit.commands.script.variant import Kind, leaves
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.target import Options

pytestmark = [pytest.mark.real, pytest.mark.slow]

RELEASES = ("0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")
CALL = "python3 -m verl.trainer.main_ppo"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32"
NAME = "actor_rollout_ref.rollout.name=vllm"
SCRIPTS = {
    "lines.sh": f"""#!/usr/bin/env bash
set -x
export VLLM_LOGGING_LEVEL=WARN
BS=${{BS:-1024}}
{CALL} \\
    algorithm.adv_estimator=grpo {NAME} \\
    data.train_files=$HOME/data/train.parquet \\
    data.train_batch_size=$BS \\
    data.max_prompt_length=512 \\
    data.max_response_length=1024 \\
    data.filter_overlong_prompts=True \\
    data.truncation='error' \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    {MICRO} \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.rollout.n=5 \\
    critic.ppo_micro_batch_size_per_gpu=8 \\
    trainer.logger='["console","wandb"]' \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=1 \\
    trainer.save_freq=999 \\
    trainer.test_freq=5 \\
    trainer.total_epochs=15 $@ 2>&1 | tee /dev/null
""",
    "arrays.sh": f"""#!/usr/bin/env bash
set -euo pipefail
SIZES=(
    data.train_batch_size=${{TRAIN_BATCH_SIZE:-512}}  # prompts
    "data.max_response_length=2048"
    actor_rollout_ref.actor.ppo_mini_batch_size=$((64 * 2))
    actor_rollout_ref.actor.use_dynamic_bsz=True
)
ROLLOUT=({NAME} actor_rollout_ref.rollout.n=16 actor_rollout_ref.rollout.enforce_eager=False)
[ -n "${{LORA:-}}" ] && ROLLOUT+=(actor_rollout_ref.model.lora_rank=32)
TRAINER=(trainer.nnodes=2 trainer.n_gpus_per_node=8 trainer.logger=console)
{CALL} \\
    "${{SIZES[@]}}" \\
    "${{ROLLOUT[@]}}" \\
    "${{TRAINER[@]}}" \\
    "$@"
""",
    "one_line.sh": f"cd . && nohup {CALL} {NAME} {MICRO} trainer.n_gpus_per_node=1 '++data.train_batch_size=64' critic.ppo_micro_batch_size_per_gpu=4 > /dev/null\n",
    "function.sh": f"""train() {{
  if [ "$1" = yes ]; then shift; {CALL} {NAME} {MICRO} "$@"; fi
}}
train yes critic.ppo_micro_batch_size_per_gpu=4 data.train_batch_size=256 trainer.save_freq=10
""",
    "string.sh": f"""ARGS="{NAME} {MICRO} critic.ppo_micro_batch_size_per_gpu=4 data.train_batch_size=128"
ARGS="$ARGS trainer.test_freq=2"
{CALL} $ARGS actor_rollout_ref.rollout.load_format=auto
""",
    "called.sh": 'echo begin\nbash lines.sh trainer.nnodes=2 "$@"\n',
    "sourced.sh": f'. ./settings.sh\n{CALL} "${{SHARED[@]}}" trainer.n_gpus_per_node=4\n',
    "loop.sh": f"for lr in 1e-6; do\n  {CALL} {NAME} {MICRO} critic.ppo_micro_batch_size_per_gpu=4 \\\n    actor_rollout_ref.actor.optim.lr=$lr  # so\ndone\n",
    "megatron.sh": f"""{CALL} --config-path=config --config-name='ppo_megatron_trainer.yaml' {NAME} {MICRO} \\
    algorithm.adv_estimator=grpo \\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\
    data.train_batch_size=256 \\
    actor_rollout_ref.rollout.n=4
""",
    "ray.sh": f"ray job submit --address=http://127.0.0.1:8265 --no-wait -- {CALL} {NAME} {MICRO} critic.ppo_micro_batch_size_per_gpu=4 trainer.nnodes=2\n",
}
FAST = ("arrays.sh", "string.sh")
FEW = ("string.sh", "lines.sh", "megatron.sh")
"""For releases in between: what scripts look like does not depend on the release, what its configuration holds does."""
SETTINGS = f"SHARED=({NAME} {MICRO} critic.ppo_micro_batch_size_per_gpu=4 data.train_batch_size=512)\n"
STUB = '#!/bin/bash\nprintf \'%s\\0\' "$@" >> "$SAID"\n'


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all scripts, and a PATH on which python3 and ray only note their arguments."""
    for name in ("python3", "ray"):
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    (tmp_path / "settings.sh").write_text(SETTINGS)
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def handed_over(script: Path) -> list[str]:
    """The overrides that bash hands to the one command of verl."""
    output = script.with_name("said")
    output.unlink(missing_ok=True)
    # With one home for all runs, Hydra's answers are kept from one to the next.
    environ = {**os.environ, "PATH": f"{script.parent}/bin:{os.environ['PATH']}", "SAID": str(output)}
    environ["HOME"] = "/home/user"
    subprocess.run(["bash", str(script)], env=environ, check=True, capture_output=True, timeout=120)
    words = output.read_text().split("\0")[:-1]
    return [
        word for word in words[words.index("verl.trainer.main_ppo") + 1 :] if not word.startswith("--config")
    ]


@pytest.mark.parametrize("release", [*map(thorough, RELEASES[:-1]), RELEASES[-1]])
def test_hydra_reads_exactly_the_intended_changes(
    release: str, job: Path, wheel_tree: Callable[[str, str], Path]
) -> None:
    tree = wheel_tree("verl", release)
    session = open_session(Options(verl=tree, launch=("lines.sh",)))
    names, fast = (SCRIPTS, FAST) if release in (RELEASES[0], RELEASES[-1]) else (FEW, FEW[:1])
    orders: list[tuple[Kind, str]] = [("DEBUG", name) for name in names] + [
        ("FAST_LOAD", name) for name in fast
    ]
    made = {(kind, name): _made(session, kind, job / name) for kind, name in orders}
    scripts = [job / name for name in names] + [_variant(kind, job / name) for kind, name in made]
    seen = dict(zip(scripts, asked(_request(script, tree) for script in scripts), strict=True))
    assert len(made) == len(names) + len(fast)
    for (kind, name), found in made.items():
        before, after = seen[job / name], seen[_variant(kind, job / name)]
        assert "is" in before, f"{kind} of {name}: {before}"
        assert "is" in after, f"{kind} of {name}: {after}"
        wanted = {
            **dict(leaves(before["is"])),
            **{change.key: change.value for change in found.recipes[0].changes},
        }
        assert dict(leaves(after["is"])) == wanted, f"{kind} of {name}"


def _made(session: Session, kind: Kind, script: Path) -> Made:
    """Make the variant and write it where it belongs."""
    here = replace(session, target=replace(session.target, files=(script,)))
    found = make(here, kind, _variant(kind, script), debug if kind == "DEBUG" else fast_load)
    _variant(kind, script).write_bytes(found.content)
    return found


def _variant(kind: Kind, script: Path) -> Path:
    return script.with_name(f"{kind}_{script.name}")


def _request(script: Path, tree: Path) -> dict[str, Any]:
    config = "ppo_megatron_trainer" if "megatron" in script.name else "ppo_trainer"
    return {"folder": str(tree / "verl/trainer/config"), "name": config, "overrides": handed_over(script)}
