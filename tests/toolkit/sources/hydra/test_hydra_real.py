"""Comparison with real Hydra: the same words, the same configurations of released verl, the same overrides."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.real_hydra.asked import asked

from verl_doctor.toolkit.sources.hydra.compose import Sources, compose
from verl_doctor.toolkit.sources.hydra.defaults import CompositionError
from verl_doctor.toolkit.sources.hydra.grammar import Override, OverrideError, parse_override

pytestmark = [pytest.mark.real, pytest.mark.slow]

RELEASES = ("0.4.1", "0.6.1", "0.8.0", "0.9.1")
OVERRIDES = (
    ["model_engine=megatron"],
    ["actor@actor_rollout_ref.actor=megatron_actor"],
    [
        "trainer.nnodes=2",
        "+trainer.new.deep=[1,a,{b:1e-6}]",
        "++data.train_files=null",
        "~trainer.project_name",
    ],
    ["data.train_files=['a','b']", "actor_rollout_ref.actor={ppo_epochs: 3}"],
    ["reward_model.enable=True"],
    ["+actor_rollout_ref.model.override_config.attn=sdpa"],
    ["+actor_rollout_ref.rollout.engine_kwargs.vllm.x=1"],
    ["actor_rollout_ref.rollout.engine_kwargs.vllm={a: 1}"],
    ["optim@actor_rollout_ref.actor.optim=megatron"],
    ["nope.x=1"],
    ["+trainer.nnodes=3"],
    ["~data.zzz"],
    ["critic={}"],
    ["trainer.logger.0=x"],
    ["algorithm.kl_ctrl=null", "algorithm.kl_ctrl.x=1"],
    ["actor_rollout_ref.ref.profiler=a", "+actor_rollout_ref.ref.profiler.b=1"],
    ["+optim@foo.bar=fsdp"],
    ["+engine=[fsdp,megatron]"],
    ["~data"],
    ["~critic@critic"],
    [
        "model_engine=megatron",
        "++actor_rollout_ref.ref.megatron.override_transformer_config.a=1",
        "+actor_rollout_ref.ref.megatron.override_transformer_config.recompute_method=b",
    ],
    [
        "model_engine=megatron",
        "+actor_rollout_ref.actor.megatron.override_transformer_config.a=1",
        "+actor_rollout_ref.ref.megatron.override_transformer_config.a=1",
    ],
    [
        "model_engine=megatron",
        "actor_rollout_ref.ref.megatron.override_transformer_config.recompute_method=b",
    ],
)
# fmt: off
ATOMS = (
    "a", "b1", "_x", "x-y", "$p", ".", "/", "@", "=", "+", "++", "~", "1", "0", "01", "-3", "1e-6", "1.", "+.5", "1_000",
    "inf", "nan", "True", "false", "null", "[", "]", "{", "}", ",", ":", "'q'", '"d"', "\\,", "\\", "${a.b}", "${oc.env:X}",
    "(", ")", "é", "#", "!", "*", "%", "|", "?", "'", '"', "\\'", "a.b", "'it\\'s'", "''", " ", "\t",
)
# fmt: on


def test_overrides_are_parsed_as_by_hydra() -> None:
    dice = random.Random(7)
    texts = [
        dice.choice(["a", "a.b", "+a.b", "++a", "~a", "a@b", "a/b@c"])
        + "="
        + "".join(dice.choices(ATOMS, k=dice.randint(0, 7)))
        for _ in range(3000)
    ]
    for text, answer in zip(texts, asked({"parse": text} for text in texts), strict=True):
        found = _read(text)
        if found is None:
            assert "refused" in answer, text
        if found is None or found.computed:
            continue
        assert "is" in answer, f"{text!r}: {answer}"
        sign, key, package, kind, value = answer["is"]
        assert (found.sign, found.key, found.package, found.several) == (
            sign,
            key,
            package,
            kind != "ELEMENT",
        ), text
        if not found.several:
            assert json.dumps(found.value, sort_keys=True) == json.dumps(value, sort_keys=True), text


def test_released_configurations_are_composed_as_by_hydra(
    wheel_tree: Callable[[str, str], Path],
) -> None:
    requests = []
    for release in RELEASES:
        folder = wheel_tree("verl", release) / "verl" / "trainer" / "config"
        names = [
            path.stem for path in sorted(folder.glob("*.yaml")) if not path.name.startswith("_generated")
        ]
        given = [(name, []) for name in names] + [("ppo_trainer", words) for words in OVERRIDES]
        requests += [{"folder": str(folder), "name": name, "overrides": words} for name, words in given]
    for request, answer in zip(requests, asked(requests), strict=True):
        ours = _ours(Path(request["folder"]), request["name"], request["overrides"])
        assert (ours is None) == ("refused" in answer), f"{request}: {answer}"
        if ours is not None:
            assert json.dumps(ours, sort_keys=True) == json.dumps(answer["is"], sort_keys=True), request


def _read(text: str) -> Override | None:
    try:
        return parse_override(text)
    except OverrideError:
        return None


def _ours(folder: Path, name: str, overrides: list[str]) -> dict[str, Any] | None:
    try:
        found = compose(Sources([folder]), name, [parse_override(text) for text in overrides])
    except CompositionError:
        return None
    return found.after if set(found.outcomes) <= {"applied", "chosen"} else None
