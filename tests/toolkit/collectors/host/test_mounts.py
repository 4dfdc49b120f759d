"""The mounts in which people have files."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.host.mounts import Mount, Mounts, mounts
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

TABLE = """\
20 1 0:30 / / rw,relatime - overlay overlay rw,lowerdir=/l
21 20 0:5 / /proc rw - proc proc rw
22 20 0:6 / /dev/shm rw - tmpfs shm rw
23 20 0:40 / /home rw - nfs4 server:/export/home rw,addr=10.0.0.9
24 20 0:41 / /share rw,noexec - cifs //server/share rw,username=ann,password=hunter2
25 20 8:1 / /scratch rw - xfs /dev/nvme0n1 rw
26 20 8:2 /hosts /etc/hosts rw - ext4 /dev/sda1 rw
27 20 0:50 / /run/user/0 rw - nfs4 s:/x rw
28 20 8:3 / /scratch ro - ext4 /dev/sdb1 ro
"""


def test_mounts_are_reported_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(TABLE)
    found = mounts.collect(Machine(root=tmp_path))
    assert found == Mounts(
        (
            Mount("/", "overlay"),
            Mount("/home", "nfs4", shared=True),
            Mount("/scratch", "ext4", read_only=True),
            Mount("/share", "cifs", shared=True, runnable=False),
        )
    )
    assert "hunter2" not in repr(found)


def test_missing_proc_is_absent(tmp_path: Path) -> None:
    assert isinstance(mounts.collect(Machine(root=tmp_path)), Absent)
