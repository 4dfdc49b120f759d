"""Whether a process has a file open or listens on a socket.

The kernel reports it for all users, containers and namespaces.

/proc shows the processes of one namespace, and hides the open files of other users. The kernel counts for
each file how often it is open or mapped, and records for each socket whether a process is bound to it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
from typing import Literal

InUse = Literal["no", "yes", "undetermined"]

_NOT_LISTENING = {errno.ECONNREFUSED}


def open_anywhere(name: str, folder: int) -> InUse:
    """Return whether any process has a regular file in the open folder `folder` open or mapped.

    The kernel grants a write lease only if no other process has the file open (fcntl(2), F_SETLEASE). The
    lease is released immediately. Network file systems grant none, and only the file's owner gets one.
    """
    try:
        # Without O_NONBLOCK, opening would wait until the holder of a lease releases it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        return "yes" if error.errno in {errno.EWOULDBLOCK, errno.ETXTBSY} else "undetermined"
    try:
        # If another process opens the file now, the kernel sends a signal, which is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return "yes" if error.errno == errno.EAGAIN else "undetermined"
    else:
        return "no"
    finally:
        os.close(descriptor)  # also releases the lease


def bound_anywhere(name: str, folder: int) -> InUse:
    """Return whether any process is bound to the Unix socket in the open folder `folder`.

    The test connects a datagram socket, which needs no accept and sends nothing. It succeeds for a datagram
    server and fails for one of another type, and the server notices neither.
    """
    with contextlib.closing(
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    ) as trying:
        try:
            # A socket address holds 107 bytes, and the path of a Ray session is longer.
            trying.connect(f"/proc/self/fd/{folder}/{name}")
        except OSError as error:
            if error.errno in _NOT_LISTENING:
                return "no"
            return "undetermined" if error.errno in {errno.EACCES, errno.EPERM, errno.ENOENT} else "yes"
        except ValueError:
            return "undetermined"
    return "yes"
