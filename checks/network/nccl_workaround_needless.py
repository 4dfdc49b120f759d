"""NET132: a variable slows NCCL down and is not needed."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.variables import Place, places
from verl_doctor.toolkit.collectors.cuda.collective import Collective
from verl_doctor.toolkit.collectors.cuda.collective_trial import Trial
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

# Values that disable a transport.
_OFF = {"NCCL_P2P_DISABLE": ("1",), "NCCL_SHM_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0")}
_FAST = Collective(gpus=(0, 1), nccl="2.28.9", trials=(Trial(works=True, bandwidth=213.3),))
_BROKEN = Collective(
    gpus=(0, 1), nccl="2.28.9", trials=(Trial(), Trial((("NCCL_P2P_DISABLE", "1"),), works=True))
)
_SCRIPT = Launch(
    files=(("run.sh", "shell script"),),
    settings=(Setting(name="NCCL_P2P_DISABLE", value="1", path="run.sh", line=4),),
)

_NO_SCRIPT = (Launch, Unknown("no launch script"))


def _examples() -> list[Example]:
    return [
        Example("nothing is set", (_FAST, Variables(), _NO_SCRIPT)),
        Example("set, but disables nothing", (_FAST, Variables({"NCCL_P2P_DISABLE": "0"}), _NO_SCRIPT)),
        Example("needed", (_BROKEN, Variables({"NCCL_P2P_DISABLE": "1"}), _NO_SCRIPT)),
        Example("in a script", (_FAST, Variables(), _SCRIPT), "NCCL_P2P_DISABLE=1 slows NCCL down"),
        Example("in the shell", (_FAST, Variables({"NCCL_SHM_DISABLE": "1"}), _NO_SCRIPT), "in this shell"),
    ]


@check("NET132", severity="warning", cost="gpu", requires={"NET130"}, examples=_examples)
def nccl_workaround_needless(
    collective: Collective, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """A variable slows NCCL down and is not needed.

    ## Why it matters

    NCCL_P2P_DISABLE=1 and similar settings are copied from machines with broken peer access. Here a real
    all-reduce works without it. The cost, measured on two H200 with NVLink: 23 GB/s instead of 213.

    ## How to fix

    Remove the line. If another machine of the cluster needs the variable, set it only there.
    """
    if not collective.plain.works:
        return
    for name, values in _OFF.items():
        found = [place for place in places(name, variables, launch) if place.value in values]
        for place in found[:1]:
            yield Finding(
                f"{place.assignment} slows NCCL down and is not needed here; it is set in {_where(place)}",
                Evidence(
                    found=place.assignment,
                    wanted=f"not set: {collective.plain.bandwidth:g} GB/s, correct results",
                    read_from=(
                        f"an all-reduce with NCCL {collective.nccl} on GPUs "
                        f"{', '.join(map(str, collective.gpus))}"
                    ),
                ),
                subject=Subject("variable", name),
                location=place.location,
                also=tuple(other.location for other in found[1:] if other.location),
                remedy="remove it, at least on this machine",
            )


def _where(place: Place) -> str:
    return str(place.location or place.where)
