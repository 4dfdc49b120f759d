"""The share of a GPU's memory that vLLM gets for a trial: what the model needs, and no more than is free.

vLLM takes `gpu_memory_utilization` of the total memory, and refuses to start if less than that is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown

_MIB = 1 << 20
# Besides the weights: CUDA itself, workspaces of kernels, a trial run with a full batch, and a small cache.
# An engine with a two-layer model keeps 1 GiB while it sleeps (vLLM 0.24.0 on an H200).
_BESIDE = 6 << 30
_WORKING = 1.25  # of the weights: temporary memory while they are loaded
_OF_FREE = 0.9  # other processes of the job start meanwhile


def engine_share(facts: Facts, weights: int, parallel: int) -> float | None:
    """Return the share for this many bytes of weights on `parallel` GPUs.

    These are the first that the job sees. The result is None if their memory is unknown.
    """
    memories = [device.memory for device in _seen(facts)[:parallel] if device.memory and not device.mig]
    if len(memories) < parallel:
        return None
    whole = min(memory.usable for memory in memories) * _MIB
    free = min(memory.free for memory in memories) * _MIB
    wanted = _BESIDE + weights * _WORKING / parallel
    return max(0.01, round(min(wanted, _OF_FREE * free) / whole, 3)) if whole else None


def _seen(facts: Facts) -> Sequence[Device]:
    """Return the GPUs that the job sees, in its order."""
    gpus, visible = facts.get(Gpus), facts.get(VisibleDevices)
    if isinstance(gpus, Unknown):
        return ()
    if isinstance(visible, Unknown):
        return gpus.sound
    by_number = {device.index: device for device in gpus.sound}
    return [by_number[number] for number in visible.devices if number in by_number]
