"""The reward keys that verl keeps for older scripts, and whether its trainer still reads them.

verl 0.7 moved `custom_reward_function`, `reward_model` and `sandbox_fusion` below `reward`
(verl-project/verl, verl/experimental/reward_loop, `migrate_legacy_reward_impl`). The old keys stay in a
configuration file, so Hydra accepts them; each program must move their values. main_ppo of 0.7 and 0.8 does,
that in 0.9.0 and 0.9.1 does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import read

_KEPT_IN = "legacy_reward_impl.yaml"
_MOVES = b"migrate_legacy_reward_impl"


@dataclass(frozen=True)
class OldRewardKeys:
    """The old `keys`, which have a counterpart below `reward`.

    `moved_by` is the file that moves their values, "" if none does.
    """

    keys: tuple[str, ...]
    moved_by: str = ""


@collector(kept=True)
def old_reward_keys(configuration: Configuration, trees: VerlTrees) -> OldRewardKeys | Unknown:
    """Read the keys from the composed configuration, and what moves them.

    The latter is read from the program and verl's trainer.
    """
    keys = tuple(key for key, place in configuration.origins.items() if f"/{_KEPT_IN}:" in f"/{place}")
    if not keys:
        return Absent("this verl has one name for each key of the reward")
    trainer = Path(trees.imported.folder) / "trainer"
    files = [Path(configuration.program), *sorted(trainer.rglob("*.py"))]
    return OldRewardKeys(keys, next((str(file) for file in files if _moves(file)), ""))


def _moves(file: Path) -> bool:
    text = read(file)
    return isinstance(text, bytes) and _MOVES in text
