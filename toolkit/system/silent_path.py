"""Detects paths that do not respond: stat() blocks forever on a dead mount."""

from __future__ import annotations

import contextlib
import os

from verl_doctor.toolkit.system.path_timeout import in_time

MOUNT_TIMEOUT = 20.0
"""Seconds; mounting on demand (autofs) takes some."""


def why_silent(path: str) -> str:
    """Return why a path cannot be accessed; "" if the kernel reports what exists there, or nothing.

    Nothing means that nothing exists there.
    """

    def responds() -> bool:
        with contextlib.suppress(OSError, ValueError):
            os.stat(path)  # noqa: PTH116 - user input may be no path at all
        return True

    if in_time(responds, MOUNT_TIMEOUT):
        return ""
    from verl_doctor.toolkit.machine import Machine  # noqa: PLC0415 - nearly every path responds
    from verl_doctor.toolkit.system.file_systems import file_system_of  # noqa: PLC0415

    system = file_system_of(Machine(), os.path.abspath(path), follow=False)
    where = f": {system.kind} from {system.device} on {system.mounted_on}" if system else ""
    return f"its file system does not respond{where}"
