"""Checks whether the driver's library works.

Runs under the target's interpreter and needs the standard library only.

Called with a token and the library's name or path. Known results are printed before each call that may hang
or crash.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
from typing import Any


def mapped_libcuda() -> str:
    """Return the libcuda file that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith("libcuda.so"):  # noqa: PTH119
                return f"/{path}"
    return ""


def refused_devices() -> list[list[str]]:
    """Return the driver's device files that cannot be opened, and why not."""
    paths = ["/dev/nvidiactl", "/dev/nvidia-uvm", *sorted(glob.glob("/dev/nvidia[0-9]*"))]  # noqa: PTH207
    return [[path, why] for path, why in zip(paths, map(refusal, paths), strict=True) if why]


def refusal(path: str) -> str:
    """Return why a device file cannot be opened, "" if it can."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def main(token: str, name: str) -> None:
    """Load the library, initialise it, count devices."""
    report: dict[str, Any] = {"file": ""}

    def emit(**more: Any) -> None:
        report.update(more)
        print(f"\n{token}{json.dumps(report)}", flush=True)

    emit()
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        emit(refused=str(error))
        return
    emit(file=mapped_libcuda())
    version, count, text = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_char_p()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        emit(cuda=version.value)
    code = library.cuInit(0)
    emit(code=code)
    if code == 0:
        emit(code=library.cuDeviceGetCount(ctypes.byref(count)), devices=count.value)
        return
    emit(refused_devices=refused_devices())
    if library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
        emit(name=text.value.decode("ascii", "replace"))


if __name__ == "__main__":
    main(*sys.argv[1:3])
