"""Which part of a GPU's memory vLLM is given for a trial: what the model needs, and no more than is free.

vLLM takes `gpu_memory_utilization` of the whole memory, and refuses to start where less than that is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown

_MIB = 1 << 20
# Beside the weights: CUDA itself, the workspaces of kernels, a trial run with a full batch, and a little cache. An engine with a model of
# two layers keeps 1 GiB when it sleeps (vLLM 0.24.0 on an H200).
_BESIDE = 6 << 30
_WORKING = 1.25  # of the weights: what is built while they are loaded
_OF_FREE = 0.9  # other processes of the job start meanwhile


def engine_share(facts: Facts, weights: int, parallel: int) -> float | None:
    """For so many bytes of weights on `parallel` GPUs, the first ones that the job sees; None where their memory is not known."""
    memories = [device.memory for device in _seen(facts)[:parallel] if device.memory and not device.mig]
    if len(memories) < parallel:
        return None
    whole = min(memory.usable for memory in memories) * _MIB
    free = min(memory.free for memory in memories) * _MIB
    wanted = _BESIDE + weights * _WORKING / parallel
    return max(0.01, round(min(wanted, _OF_FREE * free) / whole, 3)) if whole else None


def _seen(facts: Facts) -> Sequence[Device]:
    """The GPUs that the job sees, in its order."""
    gpus, visible = facts.get(Gpus), facts.get(VisibleDevices)
    if isinstance(gpus, Unknown):
        return ()
    if isinstance(visible, Unknown):
        return gpus.sound
    by_number = {device.index: device for device in gpus.sound}
    return [by_number[number] for number in visible.devices if number in by_number]
