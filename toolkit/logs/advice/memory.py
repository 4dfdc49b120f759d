"""Advice on a device out of memory, from the figures in the message: who holds memory, and in which form."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.python_errors import Raised

_MANY = 0.25  # share of the device from which on other processes, or unused blocks, are worth a look
_UNITS = {"KiB": 1 / 1024**2, "MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}
_SIZE = r"(\d+(?:\.\d+)?) ([KMGT]iB)"
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_OTHERS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_NAMES_ITSELF = "this process has "
_OWN = re.compile(
    rf"{_SIZE} is allocated by PyTorch(?:, with {_SIZE} allocated in private pools \(e\.g\., CUDA Graphs\))?"
    rf",? and {_SIZE} is reserved by PyTorch"
)
_UNUSED = re.compile(
    rf"{_SIZE} is reserved by PyTorch but unallocated|{_SIZE} already allocated; .*?{_SIZE} reserved in total"
)


def held(raised: Raised) -> str:
    """Return what the figures of the message show beyond the size of the job; "" if they show nothing more.

    Python names processes by their numbers inside the container, so a process of the job itself may be among
    the others.
    """
    total = next(iter(_sizes(_TOTAL, raised.message)), 0.0)
    if not total:
        return ""
    others = sum(_others(raised.message))
    advice = []
    if others > _MANY * total:
        advice.append(
            f"other processes hold {others:.0f} of the {total:.0f} GiB of this GPU: end them if they "
            "are none of the job (nvidia-smi, verl-doctor actors, verl-doctor clean), give each rank a "
            "GPU of its own (set_device to the local rank), or lower their share if an engine or a "
            "second model of the job is meant to share it"
        )
    unused = _UNUSED.search(raised.message)
    if unused is not None:
        sizes = list(_sizes(_UNUSED, raised.message))
        free = sizes[0] if len(sizes) == 1 else sizes[1] - sizes[0]
        if free > _MANY * total:
            advice.append(
                f"{free:.0f} GiB lie in blocks that PyTorch holds and cannot use: set "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not for processes in which an "
                "engine with sleep mode runs), or empty the cache between phases "
                "(torch.cuda.empty_cache())"
            )
    return "; ".join(advice)


def _others(message: str) -> list[float]:
    """Return what each other process holds, in GiB.

    In a container, the driver does not find the number of the process that failed, and lists it among the
    others: then the message does not name "this process", and the smallest that holds what torch allocated
    here is this one.
    """
    others = sorted(_sizes(_OTHERS, message))
    own = _OWN.search(message)
    if own is not None and _NAMES_ITSELF not in message:
        sizes = _sizes(_OWN, message)
        least = sizes[0] + sizes[-1]
        itself = next((held for held in others if held >= least), None)
        if itself is not None:
            others.remove(itself)
    return others


def _sizes(pattern: re.Pattern[str], text: str) -> list[float]:
    """Return the sizes in GiB in the texts that match."""
    return [
        float(number) * _UNITS[unit]
        for found in pattern.finditer(text)
        for number, unit in zip(*[iter(filter(None, found.groups()))] * 2, strict=True)
    ]
