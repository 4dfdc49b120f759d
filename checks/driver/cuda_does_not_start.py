"""CUDA104: cuInit fails."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.driver._cuda_errors import CUDA_ERRORS, CudaError
from verl_doctor.checks.shared.libcuda import COMPAT, DRIVER, OWN, WORKS, answers, machine
from verl_doctor.toolkit.collectors.cuda.init import VISIBLE, CudaAnswer, CudaInit
from verl_doctor.toolkit.collectors.cuda.libcuda import SONAME, LibCuda
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Fabric, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_FABRIC, _MISMATCH = 802, 803
_NO_NVML = (Gpus, Unknown("no NVML"))
_NO_FABRIC = Gpus((Device(0, fabric=Fabric("in progress")),))
_UVM = (("/dev/nvidia-uvm", "Operation not permitted"),)
_HUNG = CudaInit(CudaAnswer(OWN.real, error="it did not end within 15 s", hangs=True))
_EMPTY = CudaInit(as_job=CudaAnswer(file=OWN.real, code=100), visible="", all_devices=WORKS)
_NO_SUCH = CudaInit(as_job=CudaAnswer(file=OWN.real, code=0, devices=0), visible="9", all_devices=WORKS)
_BY_LIBRARY = CudaInit(CudaAnswer(file=COMPAT.real, code=804), own_file=WORKS)
_UNLOADABLE = CudaInit(CudaAnswer(error="libcuda.so.1: undefined symbol: x"))


def _examples() -> list[Example]:
    return [
        Example("CUDA starts", (CudaInit(WORKS),)),
        Example("CUDA starts with the GPUs that are left visible", (CudaInit(as_job=WORKS, visible="0,1"),)),
        Example(
            "no Fabric Manager",
            (answers(802),),
            "802, CUDA_ERROR_SYSTEM_NOT_READY: the fabric between the GPUs is not set up",
        ),
        Example("NVML reports the fault too", (answers(802), _NO_FABRIC)),
        Example("NVML gets no answer either", (answers(999), Gpus(refused="Unknown Error"))),
        Example("NVML is not available", (answers(802), _NO_NVML), "802"),
        Example(
            "another driver in the kernel",
            (answers(803), machine(OWN, driver="590.44.01")),
            f"(libcuda {DRIVER}, kernel 590.44.01)",
        ),
        Example("an unknown error code", (answers(777, "CUDA_ERROR_NEW"),), "777, CUDA_ERROR_NEW"),
        Example(
            "a device file without permission",
            (CudaInit(CudaAnswer(file=OWN.real, code=304, refused=_UVM)),),
            "304",
        ),
        Example("the variable hides all GPUs", (_EMPTY,), "CUDA_VISIBLE_DEVICES is empty"),
        Example(
            "the variable names a GPU that does not exist",
            (_NO_SUCH,),
            "CUDA_VISIBLE_DEVICES=9 leaves no GPU",
        ),
        Example("another libcuda works", (_BY_LIBRARY,), f"with the driver's own {OWN.real} CUDA starts"),
        Example("CUDA hangs", (_HUNG,), "it did not end within 15 s"),
        Example("the library cannot be loaded", (_UNLOADABLE,), "undefined symbol"),
    ]


@check("CUDA104", requires={"CUDA101", "CUDA102", "CUDA103"}, examples=_examples)
def cuda_does_not_start(
    init: CudaInit, libcuda: LibCuda | Unknown, gpus: Gpus | Unknown, visible: VisibleDevices | Unknown
) -> Iterator[Finding]:
    """CUDA does not start: cuInit fails.

    ## Why it matters

    It is the first call of every program that uses a GPU; verl-doctor makes it in a separate process, as the
    job would. When it fails, torch falls back to the CPU or raises an error minutes later, which seldom names
    the cause.

    ## How to fix

    By the code: 802 means that the Fabric Manager of an NVSwitch machine is not running or its version
    differs from the driver's; 803 that libcuda and the kernel's driver differ; 804 that a compat libcuda is
    used on a GPU that does not support it; 100 that no GPU is visible; 304 and 999 that a device file or
    kernel module is missing.

    ## References

    https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html, huggingface/huggingface_hub#4128
    """
    answer = init.as_job
    if answer.works or _is_reported(init, gpus, visible):
        return
    if init.all_devices is not None and init.all_devices.works:
        is_set = f"={init.visible} leaves" if init.visible else " is empty, which leaves"
        yield Finding(
            f"{VISIBLE}{is_set} no GPU to the job; without it there are {init.all_devices.devices}",
            Evidence(
                f"{VISIBLE}={init.visible}",
                "the GPUs that the job needs",
                "cuInit in a child, with and without it",
            ),
            remedy=f"unset {VISIBLE}, or list GPUs that nvidia-smi -L shows",
            severity="warning",
            stops=(EVERY_JOB,),
            phase="workers",
            subject=Subject("variable", VISIBLE),
        )
        return
    error = _error(answer)
    found = f"{answer.code}, {error.name}: {error.meaning}" if answer.code else error.meaning
    if answer.code == _MISMATCH and not isinstance(libcuda, Unknown) and libcuda.loaded and libcuda.driver:
        found += f" (libcuda {libcuda.loaded.version or 'of unknown version'}, kernel {libcuda.driver})"
    own_works = init.own_file is not None and init.own_file.works
    refused = ", ".join(f"{path} cannot be opened: {why}" for path, why in answer.refused)
    yield Finding(
        (f"cuInit fails with {found}" if answer.code else f"CUDA does not start: {found}")
        + (
            f"; with the driver's own {init.own_file.file} CUDA starts" if init.own_file and own_works else ""
        ),
        Evidence(
            "; ".join(filter(None, (f"{answer.file or 'no libcuda'}: {found}", refused))),
            "at least one GPU",
            "cuInit in a child of the target's Python",
        ),
        remedy="let the loader find the driver's own library first"
        if own_works
        else f"{refused}: {error.remedy}"
        if refused
        else error.remedy,
        stops=(EVERY_JOB,),
        phase="workers",
        fix="driver-own" if own_works else None,
        subject=Subject("library", answer.file or SONAME, error.name),
    )


def _is_reported(init: CudaInit, gpus: Gpus | Unknown, visible: VisibleDevices | Unknown) -> bool:
    """Whether a rule about GPUs reports the cause: CUDA140, CUDA147, CUDA152.

    They need NVML, which not every container has.
    """
    if isinstance(gpus, Unknown):
        return False
    hidden = isinstance(visible, VisibleDevices) and visible.choice is not None and not visible.choice.devices
    unregistered = any(device.fabric.state in {"not started", "in progress"} for device in gpus.devices)
    return (
        bool(gpus.refused)
        or any(device.trouble for device in gpus.devices)
        or (init.as_job.code == _FABRIC and unregistered)
        or (init.all_devices is not None and init.all_devices.works and hidden)
    )


def _error(answer: CudaAnswer) -> CudaError:
    """The result as text. Success without a GPU counts as the error for no GPU."""
    if answer.code is None:
        return CudaError("", answer.error, "run nvidia-smi; look for NVRM and Xid in dmesg")
    name = answer.name or "an unknown error"
    unknown = CudaError(name, "not in verl-doctor's list of CUDA errors", "look for NVRM and Xid in dmesg")
    return CUDA_ERRORS.get(answer.code or 100, unknown)
