"""The names that verl's agent loop keeps to itself, from a small verl tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.model.row_arguments import RowArguments, row_arguments
from verl_doctor.toolkit.facts import Absent

BASE = """\
class AgentLoopWorker:
    async def _run_agent_loop(self, sampling_params, trajectory, *, agent_name, **kwargs):
        output = await self.loop.run(sampling_params, **kwargs)
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)

    async def _agent_loop_postprocess(self, output, validate, **kwargs):
        return self.made(output, **self.more)
"""
WORKER = """\
class AgentLoopWorkerTQ(AgentLoopWorker):
    async def generate_sequences(self, batch):
        batch.pop("validate", None)

    async def _run_prompt(self, prompt):
        await self._run_agent_loop(self.sampling, trajectory={}, session_id=1, **prompt)

    async def _agent_loop_postprocess(self, output, validate, **kwargs):
        field = output.as_dict()
        length = field["before"].size(0)
        field.update(kwargs)
        field["input_ids"] = output.ids
        return length, field["responses"].size(0), field["input_ids"].size(0)
"""


def read(folder: Path, *words: str, worker: str = WORKER) -> RowArguments | Absent:
    for name, text in (
        ("experimental/agent_loop/agent_loop.py", BASE),
        ("trainer/ppo/v1/agent_loop_tq.py", worker),
    ):
        path = folder / "verl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tree = Tree(str(folder / "verl"), "verl", "0.9.1", "site-packages")
    configuration = replace(
        configured("+trainer.use_v1=True", *words)[0], program="/env/verl/trainer/main_ppo.py"
    )
    return row_arguments.collect(VerlTrees(tree, "it is the only one"), configuration)


def test_arguments_beside_the_columns_of_a_row(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert isinstance(found, RowArguments)
    assert set(found.passed) == {"self", "sampling_params", "trajectory", "session_id", "output"}
    assert found.passed["session_id"].endswith("agent_loop_tq.py:6")
    assert set(found.replaced) == {"responses"}


@pytest.mark.parametrize(
    "word",
    [
        "trainer.use_v1=False",
        "+data.custom_cls.path=/mine.py",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=mine.Manager",
    ],
)
def test_jobs_that_may_pass_rows_on_in_another_way(tmp_path: Path, word: str) -> None:
    assert isinstance(read(tmp_path, word), Absent)
