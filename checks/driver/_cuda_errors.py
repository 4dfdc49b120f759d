"""What the driver's error codes mean for a training job, and the remedies.

The codes and names are those of `CUresult` in CUDA's `cuda.h` (https://docs.nvidia.com/cuda/cuda-driver-api,
CUDA 13).
"""

from __future__ import annotations

from typing import NamedTuple


class CudaError(NamedTuple):
    """The driver's name for a code, what it means, and the next step."""

    name: str
    meaning: str
    remedy: str


_FABRIC = (
    "run nvidia-fabricmanager on the host, in exactly the driver's version (systemctl status "
    "nvidia-fabricmanager); in a container or on a rented machine, ask the operator or use another host"
)
_DEVICES = (
    "start the container with /dev/nvidia* (docker run --gpus all; in Kubernetes a limit on nvidia.com/gpu)"
)
_MPS = (
    "restart the MPS daemon (nvidia-cuda-mps-control -d), or unset CUDA_MPS_PIPE_DIRECTORY to run without MPS"
)

CUDA_ERRORS = {
    2: CudaError(
        "CUDA_ERROR_OUT_OF_MEMORY", "the GPU's memory is full", "find the process that holds it: nvidia-smi"
    ),
    3: CudaError("CUDA_ERROR_NOT_INITIALIZED", "the driver could not be started", "look for NVRM in dmesg"),
    34: CudaError(
        "CUDA_ERROR_STUB_LIBRARY", "the library is a stub", "remove the stubs folder from LD_LIBRARY_PATH"
    ),
    46: CudaError(
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "a GPU is in exclusive mode and in use, or being reset",
        "run nvidia-smi -q -d COMPUTE, and find the process that uses the GPU",
    ),
    100: CudaError("CUDA_ERROR_NO_DEVICE", "the driver sees no GPU", _DEVICES),
    101: CudaError(
        "CUDA_ERROR_INVALID_DEVICE",
        "the requested GPU does not exist",
        "compare CUDA_VISIBLE_DEVICES with nvidia-smi -L",
    ),
    304: CudaError(
        "CUDA_ERROR_OPERATING_SYSTEM",
        "a call to the operating system failed",
        (
            "load nvidia-uvm and create its device file (nvidia-modprobe -u -c 0), and check the limits "
            "(ulimit -a)"
        ),
    ),
    802: CudaError("CUDA_ERROR_SYSTEM_NOT_READY", "the fabric between the GPUs is not set up", _FABRIC),
    803: CudaError(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel's driver do not match",
        "load the libcuda of the kernel's driver: /proc/driver/nvidia/version has its version",
    ),
    804: CudaError(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "libcuda comes from CUDA's compat folder, which only works on data-centre GPUs",
        (
            "remove the compat folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, and install a newer "
            "driver if necessary"
        ),
    ),
    805: CudaError("CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS daemon does not respond", _MPS),
    806: CudaError("CUDA_ERROR_MPS_RPC_FAILURE", "the MPS server does not respond", _MPS),
    807: CudaError("CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready", _MPS),
    808: CudaError("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server accepts no more clients", _MPS),
    809: CudaError(
        "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server accepts no more connections", _MPS
    ),
    999: CudaError(
        "CUDA_ERROR_UNKNOWN",
        "the driver failed without giving a reason",
        "look for NVRM and Xid in dmesg; after a suspend or a driver update, reload nvidia-uvm",
    ),
}
