"""Xid errors out of the kernel's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.xid import Xid, Xids, xids
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output

GPUS = Gpus((Device(0),))
KMSG = """\
6,1000,5000000,-;usb 1-1: new device
3,1001,3600000000,-;NVRM: Xid (PCI:0000:c6:00): 79, pid=11, name=nvc:[driver], GPU has fallen off the bus.
 SUBSYSTEM=pci
3,1002,7200000000,-;NVRM: Xid (PCI:0000:C7:00.0): 31, pid=12, name=python, Ch 00000010
3,1003,7300000000,-;NVRM: Xid (PCI:0000:c6:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 05 (0x004505c6)
"""
DMESG = "[ 3600.000001] NVRM: Xid (PCI:0000:c6:00): 79, pid=11\n[    5.0] eth0: up\n"


def machine(root: Path, *, kmsg: str | None = None, dmesg: Output | None = None) -> Machine:
    (root / "dev").mkdir()
    (root / "proc").mkdir()
    (root / "proc" / "uptime").write_text("7300.25 99.0\n", "ascii")
    if kmsg is not None:
        (root / "dev" / "kmsg").write_text(kmsg, "utf-8")

    def run(argv: Sequence[str], _environ: Mapping[str, str], _limit: float) -> Output:
        if dmesg is None:
            raise FileNotFoundError
        assert argv == ["dmesg"]
        return dmesg

    return Machine(environ={}, runner=run, root=root)


def test_xid_records_are_read_from_the_kernel_log(tmp_path: Path) -> None:
    assert xids.collect(machine(tmp_path, kmsg=KMSG), GPUS) == Xids(
        (
            Xid(79, "0000:c6:00", 3700.25),
            Xid(31, "0000:c7:00", 100.25),
            Xid(149, "0000:c6:00", 0.25, nonfatal=True),
        )
    )


def test_dmesg_is_used_if_the_kernel_log_is_unreadable(tmp_path: Path) -> None:
    found = xids.collect(machine(tmp_path, dmesg=Output(0, DMESG, "", 0.1)), GPUS)
    assert found == Xids((Xid(79, "0000:c6:00", 3700.25),))


def test_only_the_latest_xids_are_kept(tmp_path: Path) -> None:
    line = "3,1,1000000,-;NVRM: Xid (PCI:0000:c6:00): {}, pid=1\n"
    found = xids.collect(machine(tmp_path, kmsg="".join(map(line.format, range(50)))), GPUS)
    assert isinstance(found, Xids)
    assert [error.number for error in found.errors] == list(range(30, 50))


@pytest.mark.parametrize(
    "dmesg", [None, Output(1, "", "dmesg: read kernel buffer failed: Operation not permitted", 0.1), Output(None, "", "", 3)]
)  # fmt: skip
def test_unreadable_log_is_unknown(tmp_path: Path, dmesg: Output | None) -> None:
    found = xids.collect(machine(tmp_path, dmesg=dmesg), GPUS)
    assert isinstance(found, Unknown)
    assert "is not readable" in found.reason
