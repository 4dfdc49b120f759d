"""The operating system and the processor, from the kernel's own lists."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.host.system import Processors, System, system
from verl_doctor.toolkit.machine import Machine, Output

X86 = """processor	: {0}
vendor_id	: GenuineIntel
model name	: INTEL(R) XEON(R) PLATINUM 8558
physical id	: {1}
core id		: {2}
flags		: fpu vme
"""
ARM = "processor\t: {0}\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n"


def seen(folder: Path, **files: str) -> System:
    for name, text in files.items():
        path = folder / {"cpuinfo": "proc/cpuinfo", "release": "etc/os-release"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    answer = system.collect(Machine(root=folder))
    assert isinstance(answer, System)
    return answer


def test_two_sockets_with_two_threads_per_core(tmp_path: Path) -> None:
    threads = [(number, number % 2, number // 4) for number in range(8)]
    facts = seen(tmp_path, cpuinfo="\n".join(X86.format(*thread) for thread in threads))
    assert facts.processors == Processors("INTEL(R) XEON(R) PLATINUM 8558", "GenuineIntel", 8, 4, 2)


def test_kernel_without_core_numbers(tmp_path: Path) -> None:
    facts = seen(tmp_path, cpuinfo="\n".join(ARM.format(number) for number in range(4)))
    assert facts.processors == Processors("", "0x41", 4)


def test_system_without_proc(tmp_path: Path) -> None:
    assert seen(tmp_path).processors == Processors(threads=os.cpu_count() or 0)


@pytest.mark.parametrize(
    "expected",
    ['PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "ID=x\nPRETTY_NAME='Debian GNU/Linux 12 (bookworm)'"],
)
def test_distribution_is_read(tmp_path: Path, expected: str) -> None:
    facts = seen(tmp_path, release=expected)
    assert facts.distribution == "Debian GNU/Linux 12 (bookworm)"
    assert (facts.name, facts.release) == (platform.system(), platform.release())


def test_lscpu_output_is_kept_verbatim(tmp_path: Path) -> None:
    def runner(argv: Sequence[str], environ: Mapping[str, str], limit: float) -> Output:
        assert (tuple(argv), environ["LC_ALL"]) == (("lscpu",), "C")
        return Output(0, "Architecture: x86_64\nCPU(s): 2\n", "", 0.0)

    answer = system.collect(Machine(root=tmp_path, runner=runner))
    assert answer.lscpu == ("Architecture: x86_64", "CPU(s): 2")


def test_system_without_lscpu(tmp_path: Path) -> None:
    def runner(*_: object) -> Output:
        raise FileNotFoundError("lscpu")

    assert system.collect(Machine(root=tmp_path, runner=runner)).lscpu == ()
