"""Which releases of verl have a key that the one which runs lacks."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.advice.keys import unknown
from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.lines import log_lines

GRADIENTS = "actor_rollout_ref.actor.fsdp_config.grad_offload"


def refused(key: str) -> str:
    """The remedy for an override that Hydra refuses."""
    log = (
        f"Could not override '{key}'.\nTo append to your config use +{key}=1\nKey 'x' is not in struct\n    full_key: {key}\n"
        "    object_type=dict\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    first = read(list(log_lines(log)), "run.log").first
    assert first is not None
    return remedy_of(first)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (GRADIENTS, f"verl has {GRADIENTS} no longer from 0.3.0 on: leave it out"),
        (
            "trainer.val_generations_to_log_to_wandb",
            "no longer from 0.4.0 on: set trainer.log_val_generations instead",
        ),
        (
            "actor_rollout_ref.rollout.skip_rollout",
            "no longer from 0.8.0 on: set actor_rollout_ref.rollout.skip.enable instead, from 0.9.0 on skip.rollout.enable",
        ),
        ("critic.enable", "verl has critic.enable from 0.6.0 on: pip install 'verl>=0.6.0', or leave it out"),
        (
            "trainer.log_val_generations",
            "from 0.4.0 on: pip install 'verl>=0.4.0', or use trainer.val_generations_to_log_to_wandb",
        ),
        (
            "actor_rollout_ref.rollout.engine_kwargs.vllm.tiles",
            "write +actor_rollout_ref.rollout.engine_kwargs",
        ),
    ],
)
def test_history_of_a_key_is_stated(key: str, expected: str) -> None:
    assert expected in unknown(key)


@pytest.mark.parametrize("key", ["trainer.n_gpus_pernode", "data.tiles", "agent.tiles"])
def test_key_without_a_history_gets_no_advice(key: str) -> None:
    assert unknown(key) == ""


def test_advice_replaces_the_general_remedy() -> None:
    assert refused(GRADIENTS).startswith(f"verl has {GRADIENTS} no longer")
    assert "add + in front" not in refused(GRADIENTS)
    assert "add + in front" in refused("trainer.tiles")


def test_code_that_reads_an_absent_key_is_no_override() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/src/verl/trainer/fit.py", line 57, in fit\n'
        '  File "/venv/lib/python3.11/site-packages/omegaconf/_utils.py", line 797, in _raise\n'
        "omegaconf.errors.ConfigAttributeError: Key 'enable' is not in struct\n    full_key: critic.enable\n"
    )
    first = read(list(log_lines(log)), "run.log").first
    assert first is not None
    assert "pip install 'verl" not in remedy_of(first)
