"""What is noted as consulted decides alone: jobs with the same answers take the same paths through a server made up at random."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.miniatures.source_trees import verl, vllm
from support.trying import SEED, cases

from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses

VLLM = {"a.py": "class A:\n    there = 1"}
CONDITIONS = 12
CHANGES = 80
VALUES: tuple[Any, ...] = (None, True, False, 0, 1, 2, -7, "", "a/b", "fp8", [], [1, 2], "???", {"inner": 1})
KEYS = tuple(f"k{number}" for number in range(24))
TWICE = KEYS[:4]
"""Keys whose values are also bound to names and attributes, under conditions."""


def expression(draw: random.Random, depth: int = 2) -> str:
    key = draw.choice(KEYS)
    leaves = [
        f"self.config.{key}",
        f"self.config.get('{key}', {draw.choice([0, None, 1])!r})",
        f"getattr(self.config, '{key}', 2)",
        f"self.{draw.choice(TWICE)}",
        f"local_{draw.choice(TWICE)}",
        f"self.twice_{draw.choice(TWICE)}",
        "self.unclear",
        "len(prompt)",
        f"os.getenv('VERL_{key.upper()}', '0')",
        repr(draw.choice([0, 1, 2, None, "", "fp8", "/"])),
    ]
    if depth == 0:
        return draw.choice(leaves)

    def part() -> str:
        return expression(draw, depth - 1)

    return draw.choice(
        [
            *leaves[:5],
            f"({part()} {draw.choice(['==', '!=', '<', '>=', '>', 'is', 'is not', 'in', 'not in'])} {part()})",
            f"({part()} {draw.choice(['==', '<', '>', 'is'])} {draw.choice([0, 1, None])!r})",
            f"({part()} {draw.choice(['+', '*', '//', '%'])} {part()})",
            f"({part()} {draw.choice(['and', 'or'])} {part()})",
            f"(not {part()})",
            f"({part()} if {part()} else {part()})",
            f"('/' in {part()})",
            f"int({part()})",
        ]
    )


def server(draw: random.Random) -> str:
    stored = "\n".join(
        f"        self.{key} = config.{key}\n"
        f"        self.twice_{key} = config.{key}\n"
        f"        if {expression(draw, 1).replace('local_', 'self.')}:\n            self.twice_{key} = config.{draw.choice(KEYS)}"
        for key in TWICE
    )
    local = "\n".join(
        draw.choice(
            [
                f"        local_{key} = self.config.{key}",
                f"        local_{key} = 1\n        if self.config.{draw.choice(KEYS)}:\n            local_{key} = self.config.{key}",
                f"        local_{key} = self.config.get('{draw.choice(KEYS)}', 0)\n        if local_{key} in (0, 1):\n            local_{key} = self.config.{key}",
            ]
        )
        for key in TWICE
    )
    conditions = "\n".join(
        f"        if {expression(draw)}:\n            A.gone_{place}" for place in range(CONDITIONS)
    )
    head = "import os\nfrom vllm.a import A\nclass Server:\n    def __init__(self, config: RolloutConfig):\n        self.config: RolloutConfig = config\n"
    return f"{head}{stored}\n    async def launch(self, prompt):\n{local}\n{conditions}\n"


def job(draw: random.Random, before: Settings | None = None) -> Settings:
    """Draw a job, one that differs in few values from the one before."""
    rollout: dict[str, Any] = {"_target_": "verl.workers.config.RolloutConfig"}
    variables: dict[str, str] = {}
    if before is not None:
        rollout, variables = dict(before.tree["actor_rollout_ref"]["rollout"]), dict(before.variables)
    for key in KEYS if before is None else draw.sample(KEYS, draw.choice([1, 1, 2])):
        rollout[key] = draw.choice(VALUES)
        if draw.random() < 0.2:
            rollout.pop(key)
        if draw.random() < 0.3:
            variables[f"VERL_{key.upper()}"] = draw.choice("01")
    return Settings({"actor_rollout_ref": {"rollout": rollout}}, variables, chosen=True)


@pytest.mark.slow
def test_jobs_with_the_same_answers_take_the_same_paths(tmp_path):
    alike = 0
    for case in range(cases(6)):
        draw = random.Random(SEED * 1_000_003 + case)
        folder = tmp_path / str(case)
        pair = verl(folder, server(draw)), vllm(folder, VLLM)
        first = job(draw)
        found = read_trees(VllmUses, *pair, "", Surroundings(settings=first))
        assert isinstance(found, VllmUses)
        assert len(found.uses) > CONDITIONS // 2
        for _ in range(CHANGES):
            second = job(draw, first)
            if [first.answer(name) for name in found.consulted] != [
                second.answer(name) for name in found.consulted
            ]:
                continue
            alike += 1
            again = read_trees(VllmUses, *pair, "", Surroundings(settings=second))
            assert isinstance(again, VllmUses)
            differing = [
                (before, after)
                for before, after in zip(found.uses, again.uses, strict=True)
                if before != after
            ]
            assert not differing, (first.tree, second.tree, differing)
    assert alike > cases(6)
