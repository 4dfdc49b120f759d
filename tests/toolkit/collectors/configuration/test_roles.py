"""Which models a job has, and which keys it therefore reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.roles import has_critic, has_reference, is_read, trains

TREE: dict[str, Any] = {
    "algorithm": {"adv_estimator": "gae", "use_kl_in_reward": False},
    "actor_rollout_ref": {"actor": {"use_kl_loss": False, "lr": 1.0}, "ref": {"size": 1}},
    "critic": {"enable": None, "lr": 1.0},
    "reward": {"model": {"enable": False, "rollout": {"n": 1}}, "workers": 1},
    "distillation": {"enabled": True, "teacher": {"n": 1}},
}


@pytest.mark.parametrize(
    ("words", "critic"),
    [
        ((), True),
        (("algorithm.adv_estimator=grpo",), False),
        (("algorithm.adv_estimator=grpo", "critic.enable=True"), True),
        (("critic.enable=False",), False),
        (("~critic.enable",), True),
    ],
)
def test_critic_is_enabled_explicitly_or_by_the_estimator(words: tuple[str, ...], critic: bool) -> None:
    there = configured(*words, tree=TREE)[0]
    assert has_critic(there) is critic
    assert is_read(there, "critic.lr") is critic


def test_kl_terms_require_a_reference() -> None:
    for key in ("actor_rollout_ref.actor.use_kl_loss", "algorithm.use_kl_in_reward"):
        there = configured(f"{key}=True", tree=TREE)[0]
        assert has_reference(there)
        assert is_read(there, "actor_rollout_ref.ref.size")
    without = configured(tree=TREE)[0]
    assert not has_reference(without)
    assert not is_read(without, "actor_rollout_ref.ref.size")


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("actor_rollout_ref.actor.lr", True),
        ("reward.workers", True),
        ("reward.model.enable", True),
        ("reward.model.rollout.n", False),
        ("distillation.teacher.n", True),
    ],
)
def test_keys_below_a_disabled_section_are_not_read(key: str, read: bool) -> None:
    assert is_read(configured(tree=TREE)[0], key) is read


@pytest.mark.parametrize(
    ("program", "does"),
    [
        ("/env/verl/trainer/main_ppo.py", True),
        ("/env/verl/trainer/main_generation_server.py", False),
        ("/env/verl/trainer/main_eval.py", False),
        ("/home/me/main_generation.py", True),  # the user's own: whatever it does
    ],
)
def test_verl_programs_without_training_are_recognised(program: str, does: bool) -> None:
    assert trains(replace(configured(tree=TREE)[0], program=program)) is does
