"""CUDA152: CUDA_VISIBLE_DEVICES hides GPUs that the job needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.corrections import healed, variable
from verl_doctor.checks.shared.gpus import NVML, healthy, node
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.collectors.variables.visible_devices import VISIBLE_DEVICES, Choice, VisibleDevices
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted

_FOUR = node(*map(healthy, range(4)))


def _set(value: str, *left: int, **changes: str) -> VisibleDevices:
    return VisibleDevices(devices=left, choice=Choice(value=value, devices=left, **changes))  # type: ignore[arg-type]


def _examples() -> list[Example]:
    return [
        Example("not set", (_FOUR, VisibleDevices((0, 1, 2, 3)))),
        Example("two of four", (_FOUR, _set("2,3", 2, 3))),
        Example(
            "more than there are",
            (_FOUR, _set("0,1,2,3,4,5,6,7", 0, 1, 2, 3, stops_at="4")),
            "'4' names no GPU of this machine: CUDA shows 4 GPUs",
        ),
        Example(
            "what a scheduler without GPUs sets",
            (_FOUR, _set("NoDevFiles", stops_at="NoDevFiles")),
            "CUDA shows no GPU",
        ),
        Example(
            "a GPU of another machine",
            (_FOUR, _set("GPU-99999999", stops_at="GPU-99999999")),
            "names no GPU of this machine",
        ),
        Example("a device that is listed twice", (_FOUR, _set("0,0", repeated="0")), "'0' appears twice"),
        Example(
            "spaces instead of commas",
            (_FOUR, _set("0 1", 0, cut="0 1")),
            "CUDA reads only the number at the beginning of '0 1': CUDA shows 1 GPU",
        ),
        Example("the word that containers use", (_FOUR, _set("all", stops_at="all")), "'all' names no GPU"),
        Example("empty", (_FOUR, _set("")), "is empty: CUDA shows no GPU"),
        Example(
            "in a script",
            (
                _FOUR,
                VisibleDevices(
                    devices=(0,),
                    choice=Choice(value="0,9", devices=(0,), stops_at="9", path="/home/me/run.sh", line=4),
                ),
            ),
            "CUDA shows 1 GPU",
        ),
        Example(
            "in a raylet",
            (
                _FOUR,
                VisibleDevices(
                    (0, 1, 2, 3), raylets=(Choice(value="8", devices=(), stops_at="8", raylet=77),)
                ),
            ),
            "the raylet (process 77)",
        ),
    ]


@check("CUDA152", phase="ray", requires={"CUDA140"}, examples=_examples)
def visible_devices_invalid(gpus: Gpus, visible: VisibleDevices) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides GPUs that the job needs.

    ## Why it matters

    CUDA uses the entries before the first that names no GPU of this machine, and none at all if one is
    repeated. It does so silently; the job stops later: `No CUDA GPUs are available`, `invalid device
    ordinal`, or verl's `Total available GPUs ... is less than total desired GPUs`. Ray counts the entries,
    not the GPUs that CUDA then uses.

    ## How to fix

    Name existing GPUs (`nvidia-smi -L`), each once, or remove the variable. Under a scheduler request GPUs in
    the job's options: `NoDevFiles` and an empty value mean that it assigned none. Ray keeps the value with
    which it was started.
    """
    for choice in (visible.choice, *visible.raylets):
        wrong = _wrong(choice) if choice else ""
        if choice is None or not wrong:
            continue
        shown = counted(len(choice.devices), "GPU") if choice.devices else "no GPU"
        where = f" in the environment of the raylet (process {choice.raylet})" if choice.raylet else ""
        yield Finding(
            f"{VISIBLE_DEVICES}={choice.value}{where}: {wrong}: CUDA shows {shown}",
            Evidence(
                found=f"{VISIBLE_DEVICES}={choice.value}{where}",
                wanted=f"numbers below {len(gpus.devices)}, each once",
                read_from=f"{NVML}: {counted(len(gpus.devices), 'GPU')}",
            ),
            location=_location(choice),
            remedy=f"list existing GPUs, each once, or unset {VISIBLE_DEVICES}"
            + ("; then restart this raylet" if choice.raylet else ""),
            subject=Subject("variable", VISIBLE_DEVICES, choice.value),
            **healed("CUDA152", _correction(choice, len(gpus.devices))),
        )


def _correction(choice: Choice, count: int) -> Correction | None:
    """The GPUs among those listed that exist, each once; without any, the line that sets them goes."""
    entries = [entry.strip() for entry in choice.value.split(",")]
    if choice.raylet or not count or not all(entry.isdigit() for entry in entries):
        return None
    left = ",".join(dict.fromkeys(entry for entry in entries if int(entry) < count))
    effect = f"the job uses the GPUs {left}" if left else "the job uses every GPU of this machine"
    return variable(VISIBLE_DEVICES, choice.value, _location(choice), left or None, effect=effect)


def _wrong(choice: Choice) -> str:
    if choice.stops_at is not None:
        return f"'{choice.stops_at}' names no GPU of this machine"
    if choice.repeated is not None:
        return f"'{choice.repeated}' appears twice"
    if choice.cut is not None:
        return f"CUDA reads only the number at the beginning of '{choice.cut}'"
    return "" if choice.value.strip() else "it is empty"


def _location(choice: Choice) -> Location | None:
    if not choice.path:
        return None
    return Location(choice.path, None if choice.path == COMMAND_LINE else choice.line)
