"""Another user's files in a user namespace, where the kernel shows one number for all users that it lacks."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.system.ownership import why_any_not_ours, why_status_not_ours

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
_NEW_USER_NAMESPACE = 0x10000000  # linux/sched.h: CLONE_NEWUSER
_OURS, _THEIRS, _NO_NAMESPACE = 12345, 23456, 77


def _without_numbers(inside: Callable[[], str]) -> str:
    """Return what a function returns as an ordinary user in a user namespace that maps nobody."""
    reads, writes = os.pipe()
    if not (pid := os.fork()):
        code = 1
        try:
            os.setgroups([])
            os.setresgid(_OURS, _OURS, _OURS)
            os.setresuid(_OURS, _OURS, _OURS)
            if ctypes.CDLL(None).unshare(_NEW_USER_NAMESPACE):
                code = _NO_NAMESPACE
            else:
                os.write(writes, inside().encode())
                code = 0
        finally:
            os._exit(code)
    os.close(writes)
    with os.fdopen(reads) as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == _NO_NAMESPACE:
        pytest.skip("this user may not create user namespaces")
    assert code == 0
    return text


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("is_open", [False, True], ids=["path", "descriptor"])
def test_user_without_a_number_does_not_own_the_files_of_others(kind: str, is_open: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        paths = [Path(folder) / "ours", Path(folder) / "theirs"]
        for path, owner in zip(paths, (_OURS, _THEIRS), strict=True):
            path.mkdir(0o755) if kind == "folder" else path.touch(0o644)
            os.chown(path, owner, owner)

        def inside() -> str:
            assert {path.stat().st_uid for path in paths} == {os.geteuid()}, "both seem to be ours"
            if not is_open:
                return "|".join(why_any_not_ours([path], group_counts=False) for path in paths)
            opened = [os.open(path, os.O_RDONLY) for path in paths]
            whys = (
                why_status_not_ours(path, os.fstat(number), opened=number)
                for path, number in zip(paths, opened, strict=True)
            )
            return "|".join(whys)

        ours, theirs = _without_numbers(inside).split("|")
    assert not ours
    assert "theirs belongs to a user without a number in this user namespace" in theirs
