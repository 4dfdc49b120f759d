"""Names passed to vLLM as strings: targets of `mock.patch`, and methods sent to the workers."""

from __future__ import annotations

import pytest
from support.miniatures.source_trees import compare, write

from verl_doctor.toolkit.collectors.api.uses import VllmUses

LAYERS = {
    "layers.py": """
        def replace(): ...
        class Base:
            def process(self): ...
        class Linear(Base): ...
    """
}


def broken(found: VllmUses, kind: str) -> list[tuple[int, str]]:
    return [(use.line, use.name) for use in found.uses if use.kind == kind and use.breaks]


@pytest.mark.parametrize(
    "given",
    [
        "patch('vllm.layers.replace', f)",
        "patch('vllm.layers.Linear.process', f)",
        "patch('vllm.layers.gone', f, create=True)",
        "patch('torch.gone', f)",
        "patch(anything, f)",
        "patch.object(Linear, 'process', f)",
        "other.patch('vllm.layers.gone')",
    ],
)
def test_existing_or_unrelated_targets_are_not_reported(tmp_path, given):
    server = f"from unittest.mock import patch\nfrom vllm.layers import Linear\n{given}"
    assert broken(compare(tmp_path, server, LAYERS), "patch") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("patch('vllm.layers.gone', f)", (3, "vllm.layers.gone")),
        ("patch('vllm.gone.f', f)", (3, "vllm.gone.f")),
        ("patch('vllm.layers.Linear.' 'gone', f)", (3, "vllm.layers.Linear.gone")),
        ("where = 'vllm.layers.gone'\npatch(where, f)", (4, "vllm.layers.gone")),
        ("with patch('vllm.layers.gone', f): ...", (3, "vllm.layers.gone")),
        ("patch.object(Linear, 'gone', f)", (3, "vllm.layers.Linear.gone")),
        ("T = [\n ('vllm.layers.gone', f),\n ('vllm.layers.replace', f)]\nfor path, new in T:\n  patch(path, new)", (4, "vllm.layers.gone")),
        ("def f():\n  T = [('vllm.layers.gone', f)]\n  for path, new in T:\n    patch(path, new)", (4, "vllm.layers.gone")),
    ],
)  # fmt: skip
def test_patching_a_missing_target_is_reported(tmp_path, text, expected):
    server = f"from unittest.mock import patch\nfrom vllm.layers import Linear\n{text}"
    assert broken(compare(tmp_path, server, LAYERS), "patch") == [expected]


@pytest.mark.parametrize("error", ["AttributeError", "Exception", ""])
def test_caught_patch_error_is_not_reported(tmp_path, error):
    server = (
        f"from unittest import mock\ntry:\n    mock.patch('vllm.layers.gone', f)\nexcept {error}:\n    pass"
    )
    assert broken(compare(tmp_path, server, LAYERS), "patch") == []


WORKER = {
    "v1/worker/gpu_worker.py": "class Worker:\n    def sleep(self): ...",
    "v1/worker/worker_base.py": """
        class WorkerWrapperBase:
            def init_worker(self): ...
            def __getattr__(self, name): ...
    """,
}
SENDER = """
    import vllm
    class Server:
        async def launch(self):
            {0}
        async def _execute(self, what, kwargs=None):
            return await self.handle.collective_rpc.remote(method=what, kwargs=kwargs)
        def _mixed_in(self):
            return "verl.utils.mixed.Extension"
"""
MIXED = "import vllm\nclass Extension:\n    def update(self): ...\nclass Engine:\n    def start(self): ..."


def sent(tmp_path, text: str) -> list[tuple[int, str]]:
    write(tmp_path / "verl", {"utils/mixed.py": MIXED})
    return broken(compare(tmp_path, SENDER.format(text), WORKER), "sent")


@pytest.mark.parametrize("name", ["sleep", "init_worker", "update"])
@pytest.mark.parametrize("how", ["self.engine.collective_rpc('{}')", "self._execute('{}', kwargs=1)"])
def test_methods_of_worker_wrapper_and_mixin_are_found(tmp_path, how, name):
    assert sent(tmp_path, how.format(name)) == []


@pytest.mark.parametrize("name", ["gone", "start"])
@pytest.mark.parametrize(
    "how",
    [
        "self.engine.collective_rpc('{}')",
        "await self.engine.collective_rpc(method='{}', args=(1,))",
        "self.handle.collective_rpc.remote('{}')",
        "await self._execute('{}')",
    ],
)
def test_sent_method_that_no_worker_class_defines_is_missing(tmp_path, how, name):
    """`Engine` of verl has `start`, but is not mixed into the workers."""
    assert sent(tmp_path, how.format(name)) == [(5, f"Worker.{name}")]


def test_computed_method_names_are_not_judged(tmp_path):
    assert sent(tmp_path, "self.engine.collective_rpc(name)") == []


def test_sent_method_is_unknown_without_the_worker_class(tmp_path):
    found = compare(tmp_path, SENDER.format("self.engine.collective_rpc('gone')"), {"a.py": ""})
    assert [use.resolution for use in found.uses if use.kind == "sent"] == ["unknown"]


def test_methods_sent_by_modules_outside_the_rollout_are_ignored(tmp_path):
    server = "def f(config):\n    if config.x:\n        import verl.utils.other"
    found = compare(tmp_path, server, WORKER, utils__other=SENDER.format("self.llm.collective_rpc('gone')"))
    assert [use for use in found.uses if use.kind == "sent"] == []
