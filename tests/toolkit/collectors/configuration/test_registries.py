"""Names registered in a verl tree for a setting, in small trees and in released ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.registries import (
    AGENT_LOOP,
    CONTENTS,
    ESTIMATOR,
    LOGGER,
    METRIC,
    MODE,
    ROLLOUT,
    Registry,
    VerlRegistries,
)
from verl_doctor.toolkit.collectors.configuration.registry_reader import read_registries
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

UNSEEN = Unknown("not looked at")
ALGORITHMS = "trainer/ppo/core_algos.py"
ENUMERATION = """
class Estimator(str, Enum):
    GAE = "gae"
    GRPO = "grpo"

@register_adv_est(Estimator.GAE)
def gae(): ...

@register_adv_est("mine")
def mine(): ...
"""


def look(folder: Path, *words: str, environ: dict[str, str] | None = None) -> VerlRegistries:
    machine = Machine(environ=environ or {}, cwd=folder)
    return read_registries(configured(*words)[0], str(folder), machine, UNSEEN, UNSEEN)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_enumeration_and_a_text(tmp_path: Path) -> None:
    write(tmp_path, ALGORITHMS, ENUMERATION)
    registry = look(tmp_path).registries[ESTIMATOR]
    assert registry.names == ("gae", "grpo", "mine")
    assert registry.read_from == f"{tmp_path / ALGORITHMS}:6"


FILTERS = (
    "+algorithm.filter_groups.enable=True",
    "+algorithm.filter_groups.metric=x",
    "+trainer.use_v1=True",
)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ("acc", "length", "pred", "reward", "score")),
        (("+reward.custom_reward_function.path=mine.py",), None),
        (("+reward.custom_reward_function.path=[mine.py]",), None),
        (("+reward.reward_manager.name=mine",), None),
        (("+reward.reward_model.enable=True",), None),
        (("+trainer.use_v1=False",), None),
        (("+algorithm.filter_groups.enable=False",), None),
    ],
)
def test_metrics_by_which_groups_are_filtered(
    tmp_path: Path, words: tuple[str, ...], names: tuple[str, ...] | None
) -> None:
    write(tmp_path, "trainer/ppo/v1/replay_buffer.py", 'FILTER_GROUPS_REWARD_METRIC = "reward"\n')
    write(tmp_path, "utils/reward_score/a.py", 'def f():\n    return {"score": 1, "pred": 2}\n{"other": 1}\n')
    write(
        tmp_path, "utils/reward_score/b.py", 'def f(r):\n    r["score"], r["length"] = 1, 2\n    r["read"]\n'
    )
    manager = "experimental/reward_loop/reward_manager/naive.py"
    write(
        tmp_path,
        manager,
        '@register("naive")\nclass A:\n    def f(self):\n        reward_extra_info["acc"] = 1\n',
    )
    given = {word.partition("=")[0]: word for word in (*FILTERS, *words)}
    job = configured(*given.values(), tree={"algorithm": {"filter_groups": {"metric": "reward"}}})[0]
    found = read_registries(job, str(tmp_path), Machine(environ={}, cwd=tmp_path), UNSEEN, UNSEEN)
    registry = found.registries.get(METRIC)
    assert (registry.names if registry else None) == names


def test_computed_name_leaves_the_registry_open(tmp_path: Path) -> None:
    write(tmp_path, ALGORITHMS, ENUMERATION + "@register_adv_est(NAME)\ndef other(): ...\n")
    assert ESTIMATOR not in look(tmp_path).registries


def test_supported_checkpoint_contents_are_read(tmp_path: Path) -> None:
    manager = 'def saves(self):\n    return "model" in self.checkpoint_save_contents or "extra" in self.checkpoint_save_contents\n'
    write(tmp_path, "utils/checkpoint/manager.py", manager)
    write(
        tmp_path, "workers/engine/other/engine.py", 'saves = "hf_model" in config.checkpoint.save_contents\n'
    )
    saved = CONTENTS[0]
    tree = {"actor_rollout_ref": {"actor": {"checkpoint": {"save_contents": ["model"]}}}}

    def registry(*words: str) -> Registry | None:
        there = configured(*words, tree=tree)[0]
        return read_registries(there, str(tmp_path), Machine(environ={}), UNSEEN, UNSEEN).registries.get(
            saved
        )

    found = registry(f"{saved}=[model,extra]")
    assert found is not None
    assert found.names == ("model", "extra", "hf_model")
    assert registry() is None, "only read where it is set"


def test_empty_tree(tmp_path: Path) -> None:
    assert look(tmp_path) == VerlRegistries()


def test_modules_that_may_register_more_are_found(tmp_path: Path) -> None:
    library = "actor_rollout_ref.model.external_lib"
    assert look(tmp_path, f"+{library}=mine").extended_by == library
    assert (
        look(tmp_path, environ={"VERL_USE_EXTERNAL_MODULES": "mine"}).extended_by
        == "VERL_USE_EXTERNAL_MODULES"
    )
    reward = "custom_reward_function.path"
    write(tmp_path, "plain.py", "def compute_score(): ...\n")
    write(tmp_path, "more.py", "@register_adv_est('mine')\ndef mine(): ...\n")
    assert look(tmp_path, f"+{reward}=plain.py").extended_by == ""
    assert look(tmp_path, f"+{reward}=more.py").extended_by == reward
    assert look(tmp_path, f"+{reward}=gone.py").extended_by == reward


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "rollouts", "modes", "loops"),
    [
        ("0.4.1", {"hf", "vllm", "sglang", "sglang_async"}, None, None),
        ("0.6.1", {"vllm", "sglang"}, ("sync", "async"), {"single_turn_agent", "tool_agent"}),
        ("0.9.1", {"vllm", "sglang", "trtllm"}, ("async",), {"single_turn_agent", "tool_agent"}),
    ],
)
def test_released_trees(
    release: str,
    rollouts: set[str],
    modes: tuple[str, ...] | None,
    loops: set[str] | None,
    wheel_tree: Callable[[str, str], Path],
) -> None:
    tree = wheel_tree("verl", release) / "verl"
    more = (f"+{MODE}=async", f"+{AGENT_LOOP}=x")
    machine = Machine(environ={}, cwd=tree)
    before = configured(*more)[0].after  # with the keys that the miniature lacks
    found = read_registries(configured(tree=before)[0], str(tree), machine, UNSEEN, UNSEEN).registries
    assert set(found[ROLLOUT].names) == rollouts
    assert (found[MODE].names if MODE in found else None) == modes
    assert (set(found[AGENT_LOOP].names) if AGENT_LOOP in found else None) == loops
    assert {"gae", "grpo", "rloo", "remax"} <= set(found[ESTIMATOR].names)
    assert {"console", "wandb", "tensorboard"} <= set(found[LOGGER].names)
