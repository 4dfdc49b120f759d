"""A small library that a server of verl uses, and what the server misses in it."""

from __future__ import annotations

from pathlib import Path

from support.miniatures.source_trees import compare, missing

ENGINE = {
    "__init__.py": "from vllm.engine import AsyncArgs, Args\n__version__ = '0.12.0'",
    "engine.py": """
        from dataclasses import dataclass
        @dataclass
        class Config:
            size: int = 1
        @dataclass
        class Args:
            model: str = ""
            stats: bool = False
            @classmethod
            def from_cli(cls, args):
                made = cls(model=args)
                return made
            def create(self, usage=None) -> "Config": ...
        @dataclass
        class AsyncArgs(Args):
            enable_log: bool = False
        class Engine:
            def __init__(self, config: Config, *, log=False):
                self.config = config
            @classmethod
            def build(cls, config, enable_log=False) -> "Engine":
                return cls(config)
            async def reset(self): ...
            async def make(self) -> Config: ...
            @property
            def settings(self) -> Config: ...
        def setup(client, state, args): ...
        def open_ended(*args, **kwargs): ...
    """,
}


def lines(tmp_path: Path, server: str, **others: str) -> list[tuple[int, str, str]]:
    return missing(compare(tmp_path, server, ENGINE, **others))


REGISTRY = """
    _ROLLOUT_REGISTRY = {('vllm', 'async'): 'verl.workers.rollout.vllm_rollout.A'}
"""
