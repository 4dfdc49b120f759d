"""Advice on a device out of memory, from the figures in the message: who holds memory, and in which form."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.python_errors import Raised

_MANY = 0.25  # share of the device from which on other processes, or unused blocks, are worth a look
_UNITS = {"KiB": 1 / 1024**2, "MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}
_SIZE = r"(\d+(?:\.\d+)?) ([KMGT]iB)"
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_OTHERS = re.compile(rf"Process \d+ has {_SIZE} memory in use")
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
    others = sum(_sizes(_OTHERS, raised.message))
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


def _sizes(pattern: re.Pattern[str], text: str) -> list[float]:
    """Return the sizes in GiB in the texts that match."""
    return [
        float(number) * _UNITS[unit]
        for found in pattern.finditer(text)
        for number, unit in zip(*[iter(filter(None, found.groups()))] * 2, strict=True)
    ]
