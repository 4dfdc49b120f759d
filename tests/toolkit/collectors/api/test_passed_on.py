"""Constructors that pass `**kwargs` to their base: an unaccepted argument is rejected at the end of the chain."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures.source_trees import compare, missing

LIBRARY = {
    "__init__.py": "",
    "worker.py": """
        import torch
        class Base:
            def __init__(self, config, rank=0, *, log=False): ...
        class Worker(Base):
            def __init__(self, name, **kwargs):
                super().__init__(rank=1, **kwargs)
        class Deeper(Worker):
            def __init__(self, *args, extra=None, **kwargs):
                super().__init__("name", **kwargs)
        class Keeps(Base):
            def __init__(self, **kwargs):
                self.options = kwargs
                super().__init__(**kwargs)
        class Sometimes(Base):
            def __init__(self, plain=False, **kwargs):
                if not plain:
                    super().__init__(**kwargs)
        class Module(torch.nn.Module):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
        class Other:
            def __init__(self, **kwargs): ...
        class Both(Base, Other):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
    """,
}


def rejected_arguments(tmp_path: Path, call: str) -> list[str]:
    server = (
        f"from vllm import worker\nclass vLLMHttpServer:\n    def __init__(self, c):\n        worker.{call}\n"
    )
    return [name for _, _, name in missing(compare(tmp_path, server, LIBRARY))]


@pytest.mark.parametrize(
    "call",
    [
        "Worker('n', config=1, log=True)",
        "Deeper(1, 2, extra=3, config=1)",
        "Keeps(config=1, other=2)",
        "Sometimes(other=2)",
        "Module(other=2)",
        "Both(config=1, other=2)",
    ],
)
def test_accepted_or_undetermined_arguments_are_not_reported(tmp_path: Path, call: str) -> None:
    assert rejected_arguments(tmp_path, call) == []


@pytest.mark.parametrize(
    ("call", "miss"),
    [
        ("Worker('n', config=1, seed=2)", "vllm.worker.Worker(seed)"),
        ("Worker('n', config=1, rank=2)", "vllm.worker.Worker(rank)"),
        ("Worker('n')", "vllm.worker.Worker(config)"),
        ("Deeper(config=1, seed=2)", "vllm.worker.Deeper(seed)"),
    ],
)
def test_argument_that_no_callee_accepts_is_reported(tmp_path: Path, call: str, miss: str) -> None:
    assert rejected_arguments(tmp_path, call) == [miss]
