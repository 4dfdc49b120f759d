"""Follows what verl does to a configuration before anything trains: `validate_config`, the classes of sections, the data set of fine-tuning."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.nearest_accepted import with_nearest
from verl_doctor.toolkit.collectors.configuration.validation import Raised, Validation
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.refusals import (
    ClassNode,
    Follower,
    NotFollowedError,
    RefusedError,
    Section,
)
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, parse, read, walk

_VALIDATE = "validate_config"
_MAKES = "omega_conf_to_dataclass"
_ROLLOUT = "actor_rollout_ref.rollout"
_DATASET = "verl.utils.dataset.multiturn_sft_dataset.MultiTurnSFTDataset"
_CUSTOM = "data.custom_cls.path"
_WHOLE = frozenset({"config", "self.config"})  # the names of the whole configuration in programs


def read_validation(there: Configuration, trees: VerlTrees, vllm: VllmTree | Unknown) -> Validation:
    """Follow the program's file: the calls in it, and the classes of which it makes objects."""
    verl = SourceTree(Path(trees.imported.folder), trees.imported.module, "verl")
    sources = [verl]
    if not isinstance(vllm, Unknown):
        sources.append(SourceTree(Path(vllm.tree.folder), "vllm"))
    program = Path(there.program)
    module = verl.name_of(program)
    source = read(program)
    tree = parse(source, program) if isinstance(source, bytes) else None
    if module is None or not isinstance(tree, ast.Module):
        return Validation()
    found: list[Raised] = []
    nearest: dict[Raised, Raised] = {}
    for step, phase in _steps(tree, module, there):

        def judge(
            changed: Configuration, step: Callable[[Follower], object] = step, phase: Phase = phase
        ) -> Raised | None:
            return _raised(Follower(sources, changed.get), step, phase)

        raised = judge(there)
        if raised is not None and raised not in found:
            found.append(raised)
            nearest[raised] = with_nearest(raised, there, judge)
    return Validation(tuple(nearest[raised] for raised in found))


def _raised(follower: Follower, step: Callable[[Follower], object], phase: Phase) -> Raised | None:
    try:
        step(follower)
    except RefusedError as refused:
        refusal = refused.refusal
        keys = tuple(key for key in refusal.keys if "." in key)
        return Raised(refusal.raised, refusal.text, refusal.read_from, refusal.condition, keys, phase)
    except (NotFollowedError, RecursionError):
        return None
    return None


def _steps(
    tree: ast.Module, module: str, there: Configuration
) -> Iterator[tuple[Callable[[Follower], object], Phase]]:
    """What the program does that can be followed, in the order in which it does it."""
    names = {"config": Section("")}
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name == _VALIDATE:
            yield (lambda follower, call=node: follower.called_as(call, module, names)), "validation"  # type: ignore[misc]
        elif name == _MAKES and len(node.args) == 1 and not node.keywords:
            whole, _, section = dotted(node.args[0]).partition("config.")
            if section and f"{whole}config" in _WHOLE and isinstance(there.get(section), dict):
                yield (lambda follower, key=section: follower.made(key)), "workers"  # type: ignore[misc]
    if module.endswith(".sft_trainer") and there.get(_CUSTOM) in (None, MISSING):
        yield _data_set, "workers"
    elif there.has(_ROLLOUT):
        yield (lambda follower: follower.made(_ROLLOUT)), "workers"


def _data_set(follower: Follower) -> None:
    owner = follower.named(_DATASET)
    if isinstance(owner, ClassNode):
        follower.constructed(owner, {"config": Section("data")})
