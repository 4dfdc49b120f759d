"""The job's paths through verl, and the conditions under which they reach a use."""

from __future__ import annotations

import pytest
from support.miniatures.small_engine import ENGINE, REGISTRY
from support.miniatures.source_trees import compare, only


def test_condition_is_shown_and_use_without_a_path_stops_nothing(tmp_path):
    use = only(
        compare(
            tmp_path,
            "def f(config):\n    if config.lora_rank > 0:\n        from vllm.engine import gone",
            ENGINE,
        )
    )
    assert "config.lora_rank > 0" in use.when


@pytest.mark.parametrize(
    "test",
    [
        "self.node_rank == 0",
        "self.replica_rank == 0 and self.node_rank == 0",
        "torch.distributed.get_rank() == 0",
    ],
)
def test_code_for_rank_zero_runs_in_every_job(tmp_path, test):
    server = (
        f"class Server:\n    def run(self):\n        if {test}:\n            from vllm.engine import gone"
    )
    use = only(compare(tmp_path, server, ENGINE))
    assert (use.when, use.paths) == ("", ("async rollout",))


def test_method_called_under_a_condition_is_conditional(tmp_path):
    server = """
        class Server:
            def launch(self):
                if self.node_rank == 0:
                    self.first()
                else:
                    self.rest()
            def first(self):
                from vllm.engine import one
            def rest(self):
                from vllm.engine import two
    """
    found = {use.name: use.when for use in compare(tmp_path, server, ENGINE).uses}
    assert found == {"vllm.engine:one": "", "vllm.engine:two": "self.node_rank != 0"}


def test_phase_and_path_follow_from_the_importing_module(tmp_path):
    found = compare(
        tmp_path,
        "from verl.utils import used\nfrom vllm.engine import here",
        ENGINE,
        utils__used="from vllm.engine import also",
        utils__unused="from vllm.engine import never",
    )
    assert {use.name: (use.phase, use.paths) for use in found.uses} == {
        "vllm.engine:here": ("import", ("async rollout",)),
        "vllm.engine:also": ("import", ("async rollout",)),
    }


def test_module_loaded_under_a_setting_is_on_no_path(tmp_path):
    server = "def f(config):\n    if config.qat:\n        from verl.utils import later"
    use = only(compare(tmp_path, server, ENGINE, utils__later="from vllm.engine import gone"))
    assert use.paths == ()


def test_paths_are_read_from_the_registry_of_verl(tmp_path):
    registry = "_ROLLOUT_REGISTRY = {('vllm', 'async'): 'verl.workers.rollout.vllm_rollout.A', ('sglang', 'sync'): 'x.Y'}"
    assert compare(tmp_path, "", ENGINE, workers__rollout__base=registry).paths == ("async rollout",)


def test_paths_default_to_known_locations_without_a_registry(tmp_path):
    assert compare(tmp_path, "", ENGINE).paths == ("sync rollout", "async rollout")


SENDER = """
    from verl.workers.rollout.vllm_rollout.worker import Worker
    class Executor:
        def _init_executor(self):
            {}
"""


RECEIVER = """
    from vllm.engine import Args
    class Worker:
        async def loop(self, socket):
            method = socket.receive()
            await self._execute(method)
        async def _execute(self, method, *args):
            if method == "init_worker":
                return self._init_worker(*args)
            elif method == "load_model":
                Args(in_place=1)
            else:
                return self.engine.run(method)
        def _init_worker(self):
            Args(gone=1)
"""


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("self.collective_rpc('init_worker', args=())", {"gone"}),
        ("self.collective_rpc(method='init_worker')", {"gone"}),
        ("self.collective_rpc('load_model')", {"in_place"}),
        ("self.collective_rpc('sleep')", set()),
        ("self.collective_rpc(some_method)", set()),
        ("if self.config.qat:\n                self.collective_rpc('init_worker')", set()),
    ],
)
def test_functions_sent_to_workers_are_judged(tmp_path, sent, expected):
    found = compare(
        tmp_path, SENDER.format(sent), ENGINE, workers__rollout__vllm_rollout__worker=RECEIVER,
        workers__rollout__base=REGISTRY,
    )  # fmt: skip
    assert {use.last for use in found.uses if use.breaks and not use.when} == expected
    assert {use.last for use in found.uses if use.breaks} == {"gone", "in_place"}


def test_sent_function_is_not_run_with_other_arguments(tmp_path):
    server = """
        class Server:
            def start(self):
                self.collective_rpc("init_worker")
            def load(self, quantization):
                if quantization == "fp8":
                    from vllm.engine import one
                if quantization != "none":
                    from vllm.engine import two
    """
    found = compare(tmp_path, server, ENGINE)
    assert {use.when for use in found.uses if use.breaks} == {
        "quantization == 'fp8'",
        "quantization != 'none'",
    }
