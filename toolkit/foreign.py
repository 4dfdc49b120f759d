"""Whether a file that a run finds by itself may be another user's work: nobody else gives this user's job orders.

As ssh and git see it (StrictModes in sshd_config(5), safe.directory in git-config(1)).
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from pathlib import Path


def why_foreign(file: Path, *, group_counts: bool) -> str:
    """Why a file, or a folder in which it could be replaced, may be another user's work; "" when it is this user's or root's.

    `group_counts`: nor may a group write there, unless it is this user's own, with nobody else in it.
    """
    real = Path(os.path.realpath(file))
    for part in dict.fromkeys((file, file.parent, real, real.parent)):
        with contextlib.suppress(
            OSError
        ):  # what is not there, or may not be seen, is said by whoever reads it
            about = part.stat()
            if about.st_uid not in {0, os.geteuid()}:
                return f"{part} belongs to user {about.st_uid}"
            if about.st_mode & stat.S_IWOTH:
                return f"anybody may write to {part}"
            if group_counts and about.st_mode & stat.S_IWGRP and not _is_own(about.st_gid):
                return f"group {about.st_gid} may write to {part}"
    return ""


def _is_own(group: int) -> bool:
    """Whether a group is this user's alone, as the umask 002 of many distributions supposes."""
    try:
        user, named = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    own = user.pw_gid == group and user.pw_name == named.gr_name
    return own and not set(named.gr_mem) - {user.pw_name}
