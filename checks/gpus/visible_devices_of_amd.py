"""CUDA153: a variable for AMD GPUs stops the workers on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.corrections import healed
from verl_doctor.checks.shared.corrections import variable as corrected_variable
from verl_doctor.checks.shared.effective import own, row
from verl_doctor.checks.shared.gpus import healthy, node
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.collectors.variables.foreign_devices import ForeignDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_CUDA = "CUDA_VISIBLE_DEVICES"
_HIP, _ROCR = "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
_VERL = ForeignDevices(refused=(_HIP, _ROCR), read_from="/env/verl/single_controller/base/worker.py")
_OLD = ForeignDevices(refused=(), read_from=_VERL.read_from)


def _has(name: str, value: str) -> EffectiveEnvironment:
    return own(row(name, value, value, value, "the driver"))


def _examples() -> list[Example]:
    return [
        Example("neither is set", (node(), _VERL, own())),
        Example("set to nothing", (node(), _VERL, _has(_ROCR, ""))),
        Example("a verl that does not look", (node(), _OLD, _has(_HIP, "0,1"))),
        Example("the same single GPU", (node(healthy()), _VERL, _has(_HIP, "0"))),
        Example(
            "the scheduler's list",
            (node(), _VERL, _has(_HIP, "0,1,2,3,4,5,6,7")),
            "HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 reaches the workers",
        ),
        Example(
            "ROCR's variable in addition to CUDA's",
            (node(healthy()), _VERL, _has(_ROCR, "0")),
            "ROCR_VISIBLE_DEVICES=0 reaches the workers",
        ),
        Example(
            "no GPU here, and only ROCR's variable", ((Gpus, Unknown("no driver")), _VERL, _has(_ROCR, "0"))
        ),
        Example(
            "no GPU here, and both variables",
            (
                (Gpus, Unknown("no driver")),
                _VERL,
                own(row(_ROCR, "0", "0", "0", "the driver"), row(_CUDA, "0", "0", "0", "the driver")),
            ),
            "CUDA_VISIBLE_DEVICES is set too",
        ),
    ]


@check("CUDA153", phase="workers", requires={"CUDA140"}, examples=_examples)
def visible_devices_of_amd(
    gpus: Gpus | Unknown, foreign: ForeignDevices, environment: EffectiveEnvironment
) -> Iterator[Finding]:
    """A variable for AMD GPUs stops the workers on NVIDIA GPUs.

    ## Why it matters

    Slurm and some images set HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES regardless of the GPUs. Ray gives
    each worker its own CUDA_VISIBLE_DEVICES, and verl refuses to start if HIP_VISIBLE_DEVICES differs
    (`Please use the same HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, inconsistant values found`) or
    ROCR_VISIBLE_DEVICES is set (`Please don't set ROCR_VISIBLE_DEVICES when HIP/CUDA_VISIBLE_DEVICES is
    set`).

    ## How to fix

    Remove the variable before Ray is started: `unset HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES`. A running
    raylet keeps it: restart the raylet. On AMD GPUs leave the variable as it is.

    ## References

    verl-project/verl#2876, verl-project/verl#1914
    """
    for name in foreign.refused:
        variable = environment.get(name)
        value = variable.worker.text if variable is not None else None
        if variable is None or not value:
            continue
        own = environment.get(_CUDA)
        if isinstance(gpus, Unknown) and (name == _HIP or own is None or not own.worker.text):
            continue  # without a GPU that shows it, only the two variables together are refused for certain
        if isinstance(gpus, Gpus) and name == _HIP and value == "0" and len(gpus.devices) == 1:
            continue
        why = f"{_CUDA} is set too" if isinstance(gpus, Unknown) else "these are NVIDIA GPUs"
        at = Location(variable.path, variable.line or None) if variable.path else None
        # Without a GPU that is seen here, the other variable may be the one too many.
        effect = f"{_CUDA} alone chooses the devices" if isinstance(gpus, Unknown) else ""
        yield Finding(
            f"{name}={value} reaches the workers, and verl stops there: {why}",
            Evidence(
                found=f"{name}={value}, from {variable.decided_by}",
                wanted="not set",
                read_from=foreign.read_from,
            ),
            location=at,
            remedy=f"unset {name} before Ray starts",
            stops=(EVERY_JOB,),
            phase="start",
            subject=Subject("variable", name),
            **(
                healed("CUDA153", corrected_variable(name, value, at, None, effect=effect))
                if at
                else {"fix": "no-foreign-devices"}
            ),
        )
