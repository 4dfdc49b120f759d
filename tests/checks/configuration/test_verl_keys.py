"""The history of verl's configuration keys matches the released wheels, and so do the renames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bench import verl_keys

from verl_doctor.checks.configuration._verl_keys import (
    History,
    alike,
    elsewhere,
    history,
    is_slip,
    renamed,
)
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.sources.hydra.compose import Sources, compose
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, lookup
from verl_doctor.toolkit.sources.hydra.verl_keys import Rename, renames, table


def _within(key: str, keys: list[str]) -> bool:
    return any(key == other or key.startswith(f"{other}.") for other in keys)


PPO = [rename for rename in renames() if rename.tree == "ppo_trainer"]
OTHERS = [rename for rename in renames() if rename not in PPO]


@pytest.mark.parametrize("rename", PPO, ids=lambda rename: rename.old)
def test_rename_happened_in_a_single_release(rename: Rename) -> None:
    assert _within(rename.old, table()["removed"][rename.release])
    assert _within(rename.new, table()["added"][rename.release])


def test_rename_is_suggested_only_if_the_new_name_exists() -> None:
    (there,) = configured()
    found = renamed("ray_init.num_cpus", there)
    assert found
    assert (found.new, found.release) == ("ray_kwargs.ray_init.num_cpus", "0.6.0")
    assert renamed("trainer.profile_steps", there) is None


def test_consecutive_renames_are_followed() -> None:
    there = replace(configured()[0], before={"skip": {"rollout": {"enable": False}}})
    found = renamed("actor_rollout_ref.rollout.skip_rollout", there)
    assert found
    assert (found.new, found.release) == ("skip.rollout.enable", "0.9.0")


def test_history() -> None:
    assert history("critic.enable", "0.5.0").came == "0.6.0"
    assert history("critic.enable", "0.6.1").came == ""
    assert history("trainer.profile_steps", "0.6.1").went == "0.6.0"
    assert (
        history("trainer.nnodes", "0.6.1") == history("no.such.key", "0.6.1") == history("critic.enable", "")
    )


def test_later_removal_does_not_explain_a_missing_key() -> None:
    assert history("critic.model.fsdp_config.wrap_policy", "0.4.1") == History()
    assert history("critic.model.fsdp_config.wrap_policy", "0.8.0").went == "0.8.0"
    assert history("critic.model.fsdp_config.grad_offload", "0.4.1").went == "0.3.0.post0"


def test_typo_is_distinguished_from_another_name() -> None:
    (there,) = configured()
    assert alike("trainer.n_gpus_pernode", there) == "trainer.n_gpus_per_node"
    assert alike("trainer.n_gpuspernode", there) == "trainer.n_gpus_per_node"
    assert alike("actor_rollout_ref.rollout.tensor_parallel_size", there).endswith(
        ".tensor_model_parallel_size"
    )
    assert alike("trainer.node_per_n_gpus", there) == "trainer.n_gpus_per_node"
    assert alike("trainer.something", there) == ""
    assert alike("actor_rollout_ref.rollout.tensor", there).endswith(".tensor_model_parallel_size")


def test_typo_in_a_section_is_corrected() -> None:
    """The name with the typo stands elsewhere in the key: actor_rollout_ref."""
    (there,) = configured()
    meant = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    assert alike(meant.replace(".rollout", ".rolout"), there) == meant
    assert is_slip(meant.replace(".rollout", ".rolout"), meant)
    assert not is_slip(meant.replace(".rollout", ".ref"), meant)


def test_abbreviations_and_partial_names_are_matched() -> None:
    (there,) = configured()
    tree = {
        "optim": {"lr": 1e-6, "lr_warmup_steps": -1},
        "data": {"train_batch_size": 1024, "val_batch_size": None},
        "trainer": {"project_name": "x", "nnodes": 1},
    }
    there = replace(there, before=tree)
    assert alike("optim.learning_rate", there) == "optim.lr"
    assert alike("data.batch_size", there) == "data.train_batch_size"
    assert alike("trainer.project", there) == "trainer.project_name"
    assert is_slip("optim.learning_rate", "optim.lr")
    assert not is_slip("data.batch_size", "data.train_batch_size")


@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.actor.fsdp_config.grad_offload",  # not param_offload
        "actor_rollout_ref.model.use_rmpad",
        "actor_rollout_ref.rollout.engine",  # not the section engine_kwargs
        "actor_rollout_ref.actor.fsdp_configs",
        "actor_rollout_ref.rollout.n_agent",  # not n
    ],
)
def test_unrelated_word_is_not_a_typo(key: str) -> None:
    (there,) = configured()
    assert alike(key, there) == ""


def test_endless_key_is_compared_with_no_other() -> None:
    (there,) = configured()
    assert elsewhere("trainer." * 5_000 + "logger", there) == []


@pytest.mark.real
@pytest.mark.slow
def test_table_matches_the_wheels(wheel_tree: Callable[[str, str], Path]) -> None:
    trees = {
        release: wheel_tree("verl", release) / "verl" for release in (table()["first"], *table()["added"])
    }
    assert verl_keys.table(trees) == table()


@pytest.mark.real
@pytest.mark.slow
def test_renames_in_other_trees_match_their_releases(wheel_tree: Callable[[str, str], Path]) -> None:
    before, after = (wheel_tree("verl", release) / "verl/trainer/config" for release in ("0.7.0", "0.7.1"))
    had = compose(Sources([before]), "sft_trainer", []).after
    has = compose(Sources([after]), "sft_trainer_engine", []).after
    assert {(rename.tree, rename.release) for rename in OTHERS} == {("sft_trainer", "0.7.1")}
    for rename in OTHERS:
        assert lookup(had, rename.old) is not MISSING, rename
        assert lookup(has, rename.old) is MISSING, rename
        assert lookup(has, rename.new) is not MISSING, rename


def test_same_name_is_found_in_similar_sections() -> None:
    (there,) = configured()
    assert elsewhere("rollout.name", there) == ["actor_rollout_ref.rollout.name"]
    assert elsewhere("max_num_seqs", there) == ["actor_rollout_ref.rollout.max_num_seqs"]
    assert elsewhere("retriever.name", there) == []
