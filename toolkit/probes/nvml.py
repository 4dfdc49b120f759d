"""Queries NVML for the state of the GPUs.

Runs in a child of verl-doctor, because a faulty driver hangs or crashes its caller.

It is passed as text, so it needs the standard library and NVIDIA's bindings (pynvml) only. Called with a
token and the folder of pynvml, it prints one JSON document of numbers as NVML returns them, in NVML's units;
`nvml` interprets them. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SURVEY_TIMEOUT = 5.0  # seconds for all GPUs, queried in parallel: a hanging GPU hides no other
MOST_LINKS = 36
LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = (3, 13, 25)  # not supported by this GPU, this driver or this version of a structure
_UNCORRECTED, _SINCE_LOADED, _SINCE_MADE = 1, 0, 1
_LIBRARY_NOT_FOUND = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_READ, _NVLINK = 0, 2  # NVML_P2P_CAPS_INDEX_...

# Results of single calls, by the key under which they are reported.
CALLS = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "capability": "nvmlDeviceGetCudaComputeCapability",
    "mig": "nvmlDeviceGetMigMode",
    "ecc": "nvmlDeviceGetEccMode",
    "remapped": "nvmlDeviceGetRemappedRows",
    "retirement_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
    "power_default": "nvmlDeviceGetPowerManagementDefaultLimit",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_most": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_most": "nvmlDeviceGetMaxPcieLinkGeneration",
}


def memory(nvml: Any, device: Any) -> list[int | None]:
    """Return bytes: total, used, free, and reserved for the driver.

    Before driver 510 the last is included in used.
    """
    try:
        now = nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
    except (AttributeError, nvml.NVMLError):
        now = nvml.nvmlDeviceGetMemoryInfo(device)
    return [now.total, now.used, now.free, getattr(now, "reserved", None)]


def pci(nvml: Any, device: Any) -> Any:
    """Return its place on the bus: "00000000:C6:00.0"."""
    return nvml.nvmlDeviceGetPciInfo(device).busId


def processes(nvml: Any, device: Any) -> list[list[int | None]]:
    """Return the numbers of compute and graphics processes on it, and the bytes that each holds.

    The bytes are None if NVML does not report them.
    """
    found: dict[int, int | None] = {}
    for kind in ("Graphics", "Compute"):
        for version in ("v2", "v3"):  # the newer version counts; drivers before 510 have the older one
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                read = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}")
                found.update((process.pid, process.usedGpuMemory) for process in read(device))
    return [[pid, size] for pid, size in found.items()]


def recovery(nvml: Any, device: Any) -> int | None:
    """Return the number of the recovery action that the driver requests, from driver 560 on."""
    value = nvml.nvmlDeviceGetFieldValues(device, [_RECOVERY_ACTION])[0]
    return value.value.uiVal if value.nvmlReturn == 0 else None


def clock_reasons(nvml: Any, device: Any) -> Any:
    """Return the bit mask of reasons why its clocks are not higher.

    Before driver 535 the call has another name.
    """
    try:
        return nvml.nvmlDeviceGetCurrentClocksEventReasons(device)
    except (AttributeError, nvml.NVMLError):
        return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)


def fabric(nvml: Any, device: Any) -> list[int]:
    """Return state and status of its NVSwitch fabric registration, and a health mask if the driver has it."""
    try:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(device, nvml.byref(info))
    except (AttributeError, nvml.NVMLError):
        info = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(device, nvml.byref(info))
    return [info.state, info.status, getattr(info, "healthMask", 0)]


def links(nvml: Any, device: Any) -> list[int]:
    """Return the state of each NVLink: 1 is active. Empty if there are none."""
    found: list[int] = []
    with contextlib.suppress(nvml.NVMLError):  # no such link
        for link in range(MOST_LINKS):
            found.append(nvml.nvmlDeviceGetNvLinkState(device, link))  # noqa: PERF401 - keeps those before an error
    return found


def instances(nvml: Any, device: Any) -> list[list[Any]]:
    """Return name, UUID and bytes of each MIG device."""
    if not nvml.nvmlDeviceGetMigMode(device)[0]:
        return []
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        with contextlib.suppress(nvml.NVMLError):  # empty slot
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
            name, uuid = nvml.nvmlDeviceGetName(part), nvml.nvmlDeviceGetUUID(part)
            found.append([text(name), text(uuid), nvml.nvmlDeviceGetMemoryInfo(part).total])
    return found


def temperature(nvml: Any, device: Any) -> Any:
    """Return degrees Celsius of the chip."""
    return nvml.nvmlDeviceGetTemperature(device, 0)


def uncorrected(nvml: Any, device: Any) -> Any:
    """Return memory errors since the driver was loaded."""
    return nvml.nvmlDeviceGetTotalEccErrors(device, _UNCORRECTED, _SINCE_LOADED)


def uncorrected_ever(nvml: Any, device: Any) -> Any:
    """Return memory errors over the GPU's lifetime."""
    return nvml.nvmlDeviceGetTotalEccErrors(device, _UNCORRECTED, _SINCE_MADE)


LONGER: tuple[Callable[[Any, Any], Any], ...] = (
    memory,
    pci,
    processes,
    recovery,
    clock_reasons,
    fabric,
    links,
    instances,
    temperature,
    uncorrected,
    uncorrected_ever,
)


def text(value: Any) -> Any:
    """Decode text: older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def describe(nvml: Any, device: Any, into: dict[str, Any]) -> None:
    """Query everything about one GPU.

    Unsupported queries are omitted; other errors are reported under `errors`.
    """
    for name, call in CALLS.items():
        keep(nvml, into, name, call, device)
    for read in LONGER:
        keep(nvml, into, read.__name__, read, nvml, device)


def keep(nvml: Any, into: dict[str, Any], name: str, call: str | Callable[..., Any], *arguments: Any) -> None:
    """Keep one result, or NVML's error number and message."""
    try:
        read = getattr(nvml, call) if isinstance(call, str) else call
        into[name] = text(read(*arguments))
    except nvml.NVMLError as error:
        if getattr(error, "value", None) not in _NOT_SUPPORTED:
            into.setdefault("errors", {})[name] = [getattr(error, "value", None), str(error)]
    except AttributeError:  # these bindings are older than the function
        pass
    except Exception as error:  # noqa: BLE001 - one question that breaks must not take the answers to others
        into.setdefault("errors", {})[name] = [None, f"{type(error).__name__}: {error}"]


def peers(nvml: Any, devices: dict[int, Any]) -> Iterator[list[int | None]]:
    """Yield for each pair of GPUs both numbers and two statuses.

    They are NVML's status of reading each other's memory and of NVLink between them.
    """
    for first, second in itertools.combinations(sorted(devices), 2):
        pair: dict[str, Any] = {}
        for name, what in (("read", _READ), ("nvlink", _NVLINK)):
            keep(nvml, pair, name, "nvmlDeviceGetP2PStatus", devices[first], devices[second], what)
        yield [first, second, pair.get("read"), pair.get("nvlink")]


def survey(nvml: Any, patience: float = SURVEY_TIMEOUT) -> dict[str, Any]:
    """Query all GPUs in parallel, then which of them can access each other.

    GPUs that do not respond in time are omitted.
    """
    started = time.monotonic()
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return {"refused": [getattr(error, "value", None), str(error)]}
    found: dict[str, Any] = {"seconds": time.monotonic() - started, "peers": []}
    keep(nvml, found, "driver", "nvmlSystemGetDriverVersion")
    keep(nvml, found, "cuda", "nvmlSystemGetCudaDriverVersion")
    devices_found: list[dict[str, Any]] = [{} for _ in range(count)]
    devices: dict[int, Any] = {}

    def describe_device(index: int) -> None:
        mine = devices_found[index]
        keep(nvml, mine, "device", "nvmlDeviceGetHandleByIndex", index)
        device = mine.pop("device", None)
        if device is not None:
            describe(nvml, device, mine)
            devices[index] = device
        mine["answers"] = True

    deadline = started + patience
    side_by_side(describe_device, range(count), deadline)
    found["gpus"] = [dict(mine) for mine in devices_found]
    responding = dict(devices)
    side_by_side(lambda _: found.update(peers=list(peers(nvml, responding))), range(1), deadline)
    return found


def side_by_side(task: Callable[[int], None], numbers: range, deadline: float) -> None:
    """Run the task for each number in its own thread, and wait at most until `deadline`."""
    threads = [threading.Thread(target=task, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def answer(folder: str, library: str = LIBRARY) -> dict[str, Any]:
    """Return the results of pynvml, which is in this folder.

    Without NVML itself it is not loaded: loading takes 0.07 s, the result is known, and most machines without
    a GPU lack NVML.
    """
    try:
        ctypes.CDLL(library)
    except OSError:
        return {"refused": [_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"]}
    sys.path.append(folder)
    import pynvml  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415 - see above

    return survey(pynvml)


if __name__ == "__main__":
    token, folder = sys.argv[1:3]
    print(f"\n{token}{json.dumps(answer(folder))}", flush=True)
    os._exit(0)  # a thread may hang in the driver, and so would closing NVML
