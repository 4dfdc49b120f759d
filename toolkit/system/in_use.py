"""Whether anybody has a file open or listens at a socket: the kernel's own answer, for all users, containers and namespaces.

/proc shows the processes of one namespace, and of other users not what they have open. The kernel counts for each file how
often it is open or mapped, and knows for each socket whether somebody is bound to it.
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

_NOBODY = {errno.ECONNREFUSED}


def open_anywhere(name: str, folder: int) -> InUse:
    """Whether any process has a regular file in the open folder `folder` open or mapped.

    The kernel grants a lease for writing only to the one who alone has a file open (fcntl(2), F_SETLEASE); it is
    given back at once. File systems of other machines grant none, nor does the kernel to whom the file does not belong.
    """
    try:
        # Who has a lease on it would be asked to give it up, and this would wait for that.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        return "yes" if error.errno in {errno.EWOULDBLOCK, errno.ETXTBSY} else "not told"
    try:
        # Were the file opened by somebody now, the kernel would tell: by a signal that is ignored unless asked for.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return "yes" if error.errno == errno.EAGAIN else "not told"
    else:
        return "no"
    finally:
        os.close(descriptor)  # with it goes the lease


def bound_anywhere(name: str, folder: int) -> InUse:
    """Whether any process is bound to the Unix socket in the open folder `folder`.

    It is tried with a socket for datagrams, which never waits to be accepted and sends nothing: a server of another type does
    not fit, one of this type does, and neither notices anything.
    """
    with contextlib.closing(
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    ) as trying:
        try:
            # The address of a socket has room for 107 bytes, and a session's path is longer.
            trying.connect(f"/proc/self/fd/{folder}/{name}")
        except OSError as error:
            if error.errno in _NOBODY:
                return "no"
            return "not told" if error.errno in {errno.EACCES, errno.EPERM, errno.ENOENT} else "yes"
        except ValueError:
            return "not told"
    return "yes"
