"""A fake pynvml: GPUs with given responses, errors that it raises, and a GPU that hangs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED = 3
LOST = 15


class NVMLError(Exception):
    """Like pynvml's: a number and a message."""

    def __init__(self, value: int, words: str = "") -> None:
        super().__init__(words)
        self.value = value


# The recorded responses of a healthy H200 on a node with eight.
HEALTHY: dict[str, Any] = {
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-0123abcd-53d4-990d-8b75-72f32ca568bd",
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetMigMode": (0, 0),
    "nvmlDeviceGetEccMode": (1, 1),
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
    "nvmlDeviceGetCurrentClocksThrottleReasons": 1,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(
        total=143771 << 20, used=0, free=143155 << 20, reserved=616 << 20
    ),
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:C6:00.0"),
    "nvmlDeviceGetComputeRunningProcesses_v3": [],
    "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
    "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=0))],
    "nvmlDeviceGetTemperature": 39,
    "nvmlDeviceGetTotalEccErrors": 0,
}
LINKS = 18


class Nvml:
    """What a child asks. `gpus` are their answers by the name of the call: an exception is raised, "hangs" does so.

    A call without a given response is not supported.
    """

    NVMLError = NVMLError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *gpus: dict[str, Any], links: int = LINKS, init: Exception | None = None) -> None:
        self.gpus = gpus
        self.links = links
        self.init = init

    def nvmlInit(self) -> None:
        if self.init is not None:
            raise self.init

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159.04"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._answer(index, "nvmlDeviceGetHandleByIndex", None)
        return index

    def nvmlDeviceGetNvLinkState(self, device: int, link: int) -> int:
        if link >= self.links:
            raise NVMLError(2, "Invalid Argument")
        return int(self._answer(device, "links", [1] * self.links)[link])

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, what: int) -> int:
        return int(self._answer(first, "peers", {}).get((second, what), 0))

    def c_nvmlGpuFabricInfo_v2_t(self) -> SimpleNamespace:
        return SimpleNamespace(state=0, status=0, healthMask=0)

    c_nvmlGpuFabricInfo_t = c_nvmlGpuFabricInfo_v2_t  # noqa: N815

    def byref(self, structure: Any) -> Any:
        return structure

    def nvmlDeviceGetGpuFabricInfoV(self, device: int, info: SimpleNamespace) -> None:
        info.state, info.status, info.healthMask = self._answer(device, "fabric", (3, 0, 0))

    def _answer(self, device: int, call: str, otherwise: Any) -> Any:
        answer = self.gpus[device].get(call, otherwise)
        if isinstance(answer, Exception):
            raise answer
        if answer == "hangs":
            time.sleep(60)
        return answer

    def __getattr__(self, call: str) -> Any:
        if not call.startswith("nvmlDevice"):
            raise AttributeError(call)
        return lambda device, *_: self._answer_or_refuse(device, call)

    def _answer_or_refuse(self, device: int, call: str) -> Any:
        if call not in self.gpus[device]:
            raise NVMLError(NOT_SUPPORTED, "Not Supported")
        return self._answer(device, call, None)
