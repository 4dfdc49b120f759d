"""Tiny source trees, written by hand, for tests that compare one package with another."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree

SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"
ROLLOUT = "workers/rollout/vllm_rollout/__init__.py"


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write source files, with an `__init__.py` in every folder that lacks one."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    for below in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        (below / "__init__.py").touch()
    return folder


def verl(folder: Path, server: str, **others: str) -> Tree:
    """A verl with this async server."""
    files = {
        SERVER: server,
        ROLLOUT: "",
        **{name.replace("__", "/") + ".py": text for name, text in others.items()},
    }
    return Tree(str(write(folder / "verl", files)), "verl", "0.6.1", "--verl")


def vllm(folder: Path, files: dict[str, str], version: str = "0.12.0") -> Tree:
    return Tree(str(write(folder / "vllm", files)), "vllm", version, "--vllm")


def compare(
    folder: Path, server: str, files: dict[str, str], version: str = "0.12.0", **others: str
) -> VllmUses:
    """Read both trees."""
    found = read_trees(VllmUses, verl(folder, server, **others), vllm(folder, files, version))
    assert isinstance(found, VllmUses)
    return found


def missing(found: VllmUses) -> list[tuple[int, str, str]]:
    """Line, kind and name of everything that breaks."""
    return [(use.line, use.kind, use.name) for use in found.uses if use.breaks]


def only(found: VllmUses) -> ApiUse:
    (use,) = [use for use in found.uses if use.breaks]
    return use
