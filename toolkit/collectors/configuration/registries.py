"""Names that this verl accepts for settings: rollouts, estimators, losses, reward managers, trackers etc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROLLOUT = "actor_rollout_ref.rollout.name"
MODE = "actor_rollout_ref.rollout.mode"
STRATEGY = "actor_rollout_ref.actor.strategy"
ESTIMATOR = "algorithm.adv_estimator"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
AGENT_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
LOGGER = "trainer.logger"
REWARD_MANAGER = "reward.reward_manager.name"
OLD_REWARD_MANAGER = "reward_model.reward_manager"
TOOL_FORMAT = "actor_rollout_ref.rollout.multi_turn.format"
TRAINER = "trainer.v1.trainer_mode"
QUANTIZATION = "actor_rollout_ref.rollout.quantization"
OPTIMIZERS = ("actor_rollout_ref.actor.optim.optimizer", "critic.optim.optimizer", "optim.optimizer")
TRANSPORT = "actor_rollout_ref.rollout.checkpoint_engine.backend"
RESUME = "trainer.resume_mode"
WEIGHTS = "algorithm.rollout_correction.rollout_is"
REJECTION = "algorithm.rollout_correction.rollout_rs"
METRIC = "algorithm.filter_groups.metric"
CONTENTS = tuple(
    f"{part}checkpoint.{use}_contents"
    for part in ("actor_rollout_ref.actor.", "critic.", "")
    for use in ("save", "load")
)
KEYS = (
    ROLLOUT,
    MODE,
    STRATEGY,
    ESTIMATOR,
    LOSS,
    AGENT_LOOP,
    LOGGER,
    REWARD_MANAGER,
    OLD_REWARD_MANAGER,
    TOOL_FORMAT,
    TRAINER,
    QUANTIZATION,
    TRANSPORT,
    RESUME,
    WEIGHTS,
    REJECTION,
    METRIC,
    *OPTIMIZERS,
    *CONTENTS,
)


@dataclass(frozen=True)
class Registry:
    """The names that verl has for a setting, and where they were read, as "path:line"."""

    names: tuple[str, ...]
    read_from: str = ""


@dataclass(frozen=True)
class VerlRegistries:
    """The registries by the setting that selects from them.

    A registry that could not be enumerated is left out.

    `extended_by` is what may register further names: a module that the job loads, a verl plugin; "" if
    nothing does. `closed` are the settings to which it cannot add names: those of a literal or a library, and
    those that its source does not mention.
    """

    registries: Mapping[str, Registry] = field(default_factory=dict)
    extended_by: str = ""
    closed: tuple[str, ...] = ()
