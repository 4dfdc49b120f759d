"""The FAST_LOAD variant: the same training, started sooner. Only what the installed packages read, and what really helps."""

from __future__ import annotations

from verl_doctor.toolkit.fact_configuration import MISSING, Configuration
from verl_doctor.toolkit.variant import Recipe, Wishes

_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"


def fast_load(there: Configuration) -> Recipe:
    """What is to change in a command that starts verl."""
    wishes = Wishes(there)
    wishes.give(
        f"{_ROLLOUT}.enforce_eager",
        True,
        "no graphs are compiled and captured at the start; each later step samples more slowly",
    )
    _weights(wishes)
    return wishes.recipe()


def _weights(wishes: Wishes) -> None:
    """Let the rollout read nothing from disk: verl sends it the trained weights before it samples.

    That is verl's own default, `load_format: dummy...`. With LoRA the rollout keeps the base weights that it has read.
    """
    key = f"{_ROLLOUT}.load_format"
    now, own = wishes.value(key), wishes.there.default(key)
    if now is MISSING or not str(own).startswith("dummy"):
        return
    if str(now).startswith("dummy"):
        wishes.kept.append(
            f"{key}={now} stays: the rollout reads no weights from disk, so no other format could be faster"
        )
    elif _trains_adapters(wishes):
        wishes.kept.append(f"{key}={now} stays: with LoRA the rollout needs the base weights from disk")
    elif wishes.value("actor_rollout_ref.hybrid_engine") is not False:
        wishes.give(
            key, own, "verl sends the weights to the rollout, which need not read them from disk first"
        )


def _trains_adapters(wishes: Wishes) -> bool:
    ranks = (wishes.value(f"{_MODEL}.lora_rank"), wishes.value(f"{_MODEL}.lora.rank"))
    return any(rank not in (MISSING, None, 0) for rank in ranks)
