"""Classes of verl that extend classes of vLLM, judged by how vLLM's own code calls them."""

from __future__ import annotations

import pytest
from support.miniatures.source_trees import compare, write

from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses

ENGINE = """
    class Core:
        def __init__(self, executor):
            self.queue = None
            if executor.slots > 1:
                self.queue = []
            self.model_executor = executor
            self.step_fn = self.step if self.queue is None else self.step_with_queue
        def step(self):
            future = self.model_executor.run(1, wait=True)
            return future.result()
        def step_with_queue(self):
            future = self.model_executor.run(1, wait=True)
            return future.result()
"""
EXECUTOR = """
    from abc import ABC, abstractmethod
    class Executor(ABC):
        slots = 1
        @abstractmethod
        def start(self): ...
        @abstractmethod
        def rpc(self, method, args=(), wait=False): ...
        def run(self, what, wait=False):
            return self.rpc("run", args=(what,), wait=wait)
        def rare(self):
            return self.rpc("rare", unseen=1)
    class Other(Executor):
        def run(self, what, wait=False):
            return self.rpc("run", (what,), wait, "more")
"""
VLLM = {"core.py": ENGINE, "executor.py": EXECUTOR}
OWN = """
    import vllm
    from vllm.executor import Executor
    class Ours(Executor):
        def start(self): ...
        def rpc(self, {0}):
            {1}
"""


def extended(found: VllmUses) -> list[ApiUse]:
    return [use for use in found.uses if use.kind in {"override", "result", "abstract"}]


def reported(
    tmp_path, parameters: str, body: str = "return []", files: dict[str, str] | None = None
) -> list[tuple[str, str, str]]:
    found = compare(tmp_path, OWN.format(parameters, body), files or VLLM)
    return [(use.kind, use.name.rpartition(".")[2], use.resolution) for use in extended(found)]


@pytest.mark.parametrize(
    ("parameters", "body"),
    [
        ("method, args=(), wait=False", "return wait"),
        ("method, args=(), *, wait=False, own=1", "return made(wait)"),
        ("method, args=(), **rest", "return super().rpc(method, args, **rest)"),
        ("*args, **kwargs", "return self.inner(*args, **kwargs)"),
    ],
)
def test_override_that_accepts_and_uses_every_argument_passes(tmp_path, parameters, body):
    assert reported(tmp_path, parameters, body) == []


def test_override_is_judged_by_the_calls_that_reach_it(tmp_path):
    """`Other` is a sibling: calls of its own rpc() are ignored, and so is an argument that the base does not accept."""
    found = compare(tmp_path, OWN.format("method, args=()", "return []"), VLLM)
    (use,) = extended(found)
    assert (use.kind, use.name) == ("override", "vllm.executor.Executor.rpc(wait)")
    assert use.reason == "Executor.run() passes it wait, which it does not accept"
    assert (use.line, use.when, use.paths, use.breaks) == (6, "", ("async rollout",), True)
    assert use.read_from.endswith("executor.py:10")


def test_required_parameter_that_no_caller_passes_is_reported(tmp_path):
    found = compare(tmp_path, OWN.format("method, args, more, wait=False", "return wait"), VLLM)
    assert [use.reason for use in extended(found)] == ["Executor.run() does not pass more, which it requires"]


@pytest.mark.parametrize("parameters", ["method, args=(), **rest", "method, args=(), wait=False"])
def test_override_that_ignores_a_future_flag_breaks(tmp_path, parameters):
    found = compare(tmp_path, OWN.format(parameters, "return []"), VLLM)
    (use,) = extended(found)
    assert (use.kind, use.name, use.breaks, use.when) == (
        "result",
        "vllm.executor.Executor.rpc(wait)",
        True,
        "",
    )
    assert use.reason.startswith("Core.step() sets wait and calls result() on the result")


def test_queue_that_is_off_by_default_leaves_the_result_unknown(tmp_path):
    engine = ENGINE.replace(
        "self.model_executor.run(1, wait=True)\n            return future.result()\n        def",
        "1\n        def",
    )
    assert reported(tmp_path, "method, args=(), **rest", files={**VLLM, "core.py": engine}) == [
        ("result", "rpc(wait)", "unknown")
    ]


def test_intermediate_verl_method_replaces_the_base_method(tmp_path):
    text = "return []\n        def run(self, what, wait=False):\n            return made(wait)"
    assert reported(tmp_path, "method, args=(), **rest", text) == []


def test_method_defined_only_for_this_release_exists(tmp_path):
    text = "return []\n        if vllm.__version__ {}:\n            def run(self, what, wait=False):\n                return made(wait)"
    assert reported(tmp_path / "new", "method, args=(), **rest", text.format("== '0.12.0'")) == []
    assert reported(tmp_path / "old", "method, args=(), **rest", text.format("== '0.13.0'")) != []


def test_method_passed_as_an_argument_is_called(tmp_path):
    engine = "class Core:\n    def step(self):\n        return guarded(self.model_executor.run, 1)"
    found = compare(tmp_path, OWN.format("method, args=()", "return []"), {**VLLM, "core.py": engine})
    assert [(use.name, use.when) for use in extended(found)] == [("vllm.executor.Executor.rpc(wait)", "")]


def test_call_without_a_known_caller_is_reported_as_a_condition(tmp_path):
    found = compare(tmp_path, OWN.format("method, args=()", "return []"), {"executor.py": EXECUTOR})
    assert [use.when for use in extended(found)] == ["Executor.run() is called"]


@pytest.mark.parametrize(
    "server",
    [
        "class Ours(Executor):\n    start, rpc = 1, 2",
        "class Ours(Executor):\n    try:\n        def start(self): ...\n    except ValueError: ...\n    rpc = None",
        "class Ours(Executor, abc.ABC): ...\nclass Own(Ours):\n    start = rpc = None",
        "class Ours(Executor):\n    @abc.abstractmethod\n    def more(self): ...",
    ],
)
def test_abstract_method_provided_otherwise_is_not_reported(tmp_path, server):
    found = compare(tmp_path, f"import abc\nfrom vllm.executor import Executor\n{server}", VLLM)
    assert [use.name for use in extended(found) if use.kind == "abstract"] == []


def test_missing_abstract_methods_are_reported(tmp_path):
    server = """
        from vllm.executor import Executor
        class Ours(Executor):
            def rpc(self, method, args=(), wait=False):
                return wait
    """
    (use,) = extended(compare(tmp_path, server, VLLM))
    assert (use.kind, use.name, use.line, use.paths) == (
        "abstract", "vllm.executor.Executor.start", 3, ("async rollout",),
    )  # fmt: skip


def test_intermediate_verl_class_is_followed(tmp_path):
    base = "from vllm.executor import Executor\nclass Base(Executor):\n    def start(self): ..."
    server = """
        from verl.utils.base import Base
        import vllm
        class Ours(Base):
            def rpc(self, method, args=()):
                return []
    """
    write(tmp_path / "verl", {"utils/base.py": base})
    found = compare(tmp_path, server, VLLM)
    ours = [use for use in extended(found) if use.path.endswith("async_server.py")]
    assert [(use.kind, use.name) for use in ours] == [("override", "vllm.executor.Executor.rpc(wait)")]


@pytest.mark.parametrize(
    "server",
    [
        "class Ours:\n    def rpc(self): ...",
        "from torch import Executor\nclass Ours(Executor):\n    def rpc(self): ...",
        "from vllm.executor import Executor\nclass Ours(Executor, unknown()):\n    def rpc(self, m, args=(), wait=0):\n        return wait",
    ],
)
def test_unrelated_classes_are_not_judged(tmp_path, server):
    assert [use for use in extended(compare(tmp_path, server, VLLM)) if use.breaks] == []


BASE = """
    class Config:
        size: int = 1
    class Base:
        config: Config
        def __init__(self, config, device): ...
        def rpc(self, method): ...
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("super().__init__(1, 2)", None),
        ("super().__init__(1)", ("required", "vllm.base.Base.__init__(device)")),
        ("super().rpc('a', gone=1)", ("keyword", "vllm.base.Base.rpc(gone)")),
        ("self.rpc('a', 'b')", ("positional", "vllm.base.Base.rpc(2)")),
        ("self.config.gone", ("attribute", "vllm.base.Config.gone")),
        ("self.config.size", None),
        ("self.own(1, 2)", None),
        ("self.set_elsewhere.gone", None),
    ],
)
def test_members_that_a_verl_class_inherits_are_resolved(tmp_path, body, expected):
    server = f"""
        from vllm.base import Base
        class Ours(Base):
            def __init__(self, x):
                {body}
            def own(self, a, b): ...
    """
    found = compare(tmp_path, server, {"base.py": BASE})
    assert [(use.kind, use.name) for use in found.uses if use.breaks] == ([expected] if expected else [])


def test_super_resolves_to_the_parent_class_in_verl(tmp_path):
    server = """
        from vllm.base import Base
        class Parent(Base):
            def __init__(self): ...
        class Ours(Parent):
            def __init__(self):
                super().__init__()
    """
    assert [use for use in compare(tmp_path, server, {"base.py": BASE}).uses if use.breaks] == []
