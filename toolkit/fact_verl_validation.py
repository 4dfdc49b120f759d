"""What verl itself says to the job's configuration: its own validation, run in a child process of the target's interpreter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import child_verl_validation
from verl_doctor.toolkit.child import ask_child, ending
from verl_doctor.toolkit.fact_configuration import UNTOLD_VALUE, Configuration
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_trees import VerlTrees
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

_LIMIT = 100.0  # seconds: it imports verl, and with it torch, perhaps from a slow disk


@dataclass(frozen=True)
class VerlValidation:
    """`refused` is what verl said, empty when it accepted. `kind` is the exception's class, `place` where verl raised it."""

    refused: str = ""
    kind: str = ""
    place: str = ""


@collector(timeout=_LIMIT + 10)
def verl_validation(
    configuration: Configuration, interpreter: Interpreter, trees: VerlTrees, machine: Machine
) -> VerlValidation | Unknown:
    """Let verl validate the configuration. Words that could not be told forbid it."""
    if not configuration.complete or any(asked.value == UNTOLD_VALUE for asked in configuration.asked):
        return Unknown(
            "a part of the command could not be told, so verl's own validation has not all it needs"
        )
    if not configuration.has("actor_rollout_ref.actor"):
        return Unknown("verl's own validation is for PPO's configuration, and this is another")
    if trees.imported.module != "verl":
        return Unknown(
            f"verl's own validation is not run for {trees.imported.module}, a tree inside another package"
        )
    request = {
        "path": str(Path(trees.imported.folder).parent),
        "folder": configuration.folder,
        "name": configuration.name,
        "overrides": [asked.text for asked in configuration.asked],
    }
    heard = ask_child(
        machine, interpreter.executable, child_verl_validation, json.dumps(request), timeout=_LIMIT
    )
    if isinstance(heard, Unknown):
        return heard
    answer, said = heard
    if said is None:
        return Unknown(
            f"verl's own validation did not answer within {_LIMIT:.0f} s"
            if answer.code is None
            else f"verl's own validation could not be run: {ending(answer, _LIMIT)}"
        )
    if said["stage"] == "import":
        return Unknown(f"verl's own validation could not be run: {said['kind']}: {said['text'][:200]}")
    if said["stage"] == "accepted":
        return VerlValidation()
    return VerlValidation(said["text"] or said["kind"], said["kind"], said["place"])
