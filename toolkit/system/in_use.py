"""Whether a process has a file open or listens on a socket: reported by the kernel for all users, containers and namespaces.

/proc shows the processes of one namespace, and hides the open files of other users. The kernel counts for each file how often
it is open or mapped, and records for each socket whether a process is bound to it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
from typing import Literal

InUse = Literal["no", "yes", "not told"]

_NOT_LISTENING = {errno.ECONNREFUSED}


def open_anywhere(name: str, folder: int) -> InUse:
    """Return whether any process has a regular file in the open folder `folder` open or mapped.

    The kernel grants a lease for writing only to a process that alone has the file open (fcntl(2), F_SETLEASE); it is
    released at once. Network file systems grant none, nor does the kernel to a user who does not own the file.
    """
    try:
        # A holder of a lease would be asked to release it, and this would wait for that.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        return "yes" if error.errno in {errno.EWOULDBLOCK, errno.ETXTBSY} else "not told"
    try:
        # If the file is opened now, the kernel sends a signal, which is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return "yes" if error.errno == errno.EAGAIN else "not told"
    else:
        return "no"
    finally:
        os.close(descriptor)  # this also releases the lease


def bound_anywhere(name: str, folder: int) -> InUse:
    """Return whether any process is bound to the Unix socket in the open folder `folder`.

    The test uses a datagram socket, which never waits to be accepted and sends nothing: connecting to a server of another
    type fails, to one of this type succeeds, and neither notices.
    """
    with contextlib.closing(
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    ) as trying:
        try:
            # A socket address holds 107 bytes, and a session's path is longer.
            trying.connect(f"/proc/self/fd/{folder}/{name}")
        except OSError as error:
            if error.errno in _NOT_LISTENING:
                return "no"
            return "not told" if error.errno in {errno.EACCES, errno.EPERM, errno.ENOENT} else "yes"
        except ValueError:
            return "not told"
    return "yes"
