"""Paths of verl used by a job, and handling of breaks on the others."""

from __future__ import annotations

import pytest

from verl_doctor.checks.api._api_breaks import finding
from verl_doctor.toolkit.collectors.api.job_entries import ASYNC, SGLANG_ASYNC, SGLANG_SYNC, SYNC, TRAINER
from verl_doctor.toolkit.collectors.api.taken import of_libraries, of_vllm, paths_taken
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses, Unread, VllmUses
from verl_doctor.toolkit.collectors.configuration.configuration import UNDETERMINED_VALUE, Configuration
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent

TREE = Tree("/env/verl", "0.6.1", "site-packages", "verl")
BREAK = ApiUse("/env/verl/server.py", 3, "import", "vllm:Gone", "missing", "import", (ASYNC,))


def job(
    name: object = "vllm", mode: object = "async", program: str = "/env/verl/trainer/main_ppo.py"
) -> Configuration:
    rollout = {key: value for key, value in (("name", name), ("mode", mode)) if value is not None}
    return Configuration(program, "/env", "ppo_trainer", after={"actor_rollout_ref": {"rollout": rollout}})


@pytest.mark.parametrize(
    ("configuration", "paths"),
    [
        (job(), {TRAINER, ASYNC}),
        (job(mode="sync"), {TRAINER, SYNC}),
        (job("sglang"), {TRAINER, SGLANG_ASYNC}),
        (job("hf"), {TRAINER}),
        (job(mode=None), {TRAINER, SYNC, ASYNC}),
        (job("sglang", "sync", "/recipe/one_step_off/main_ppo.py"), {TRAINER, SGLANG_SYNC, SGLANG_ASYNC}),
        (Configuration("/env/verl/trainer/sft_trainer.py", "/env", "sft_trainer", after={"data": {}}), set()),
        (job(UNDETERMINED_VALUE), None),
        (job(None), None),
        (Configuration("", "", "", refused="no such file"), None),
        (Absent("no launch script was named"), None),
    ],
)  # fmt: skip
def test_configuration_selects_the_paths(configuration: Configuration, paths: set[str] | None) -> None:
    assert paths_taken(configuration) == paths


def test_break_on_another_path_is_a_hint_that_names_it() -> None:
    broken = Unread("verl.server", "/env/verl/server.py", "line 3: invalid syntax", (ASYNC,))
    uses = VllmUses(TREE, TREE, (BREAK,), paths=(SYNC, ASYNC), unread=(broken,))
    (use,) = of_vllm(uses, frozenset({TRAINER, SYNC})).uses
    found = finding([use], "verl imports Gone", found="", wanted="", remedy="")
    assert (found.severity, found.stops) == ("info", ())
    assert "in the async rollout, which this job does not use" in found.message
    assert of_vllm(uses, frozenset({TRAINER, SYNC})).unread[0].paths == ()
    assert of_vllm(uses, frozenset({TRAINER, ASYNC})).uses == uses.uses


def test_all_paths_are_judged_if_the_tree_lacks_those_of_the_job() -> None:
    uses = VllmUses(TREE, TREE, (BREAK,), paths=(ASYNC,))
    assert of_vllm(uses, frozenset({TRAINER, SYNC})) == uses
    assert of_vllm(uses, None) == uses


def test_fine_tuning_uses_neither_trainer_nor_rollout() -> None:
    uses = LibraryUses(TREE, (VllmUses(TREE, TREE, (BREAK,), paths=(TRAINER, ASYNC)),), (TRAINER, ASYNC))
    found = of_libraries(uses, frozenset())
    assert found.paths == found.answers[0].paths == ()
    assert found.answers[0].uses[0].elsewhere == (ASYNC,)
