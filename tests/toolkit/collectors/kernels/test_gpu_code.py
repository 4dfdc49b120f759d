"""GPU code in compiled files, read from their headers."""

from __future__ import annotations

import random
import struct
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.compiled import build

from verl_doctor.toolkit.collectors.compiled.extensions import Extension, Extensions
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.installed.result_cache import keep, recall
from verl_doctor.toolkit.collectors.kernels.gpu_code import GpuCode, PackageCode, PackagesCode, packages_code
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.sources.elf.elf import ElfFile
from verl_doctor.toolkit.sources.elf.fatbin import Entry, entries_of

PTX, CUBIN = 1, 2
H200, B200 = Device(0, capability="9.0"), Device(1, capability="10.0")


def entry(
    kind: int, architecture: int, isa: tuple[int, int] = (0, 0), *, exact: bool = False, size: int = 24
) -> bytes:
    """One piece of code, as the compiler lays it out."""
    flags = 0x11 | exact << 20
    head = struct.pack("<HHIQQHHIQQ", kind, 0x101, 64, size, 0, isa[1], isa[0], architecture, 0, flags)
    return head.ljust(64, b"\0") + b"\x7fcode".ljust(size, b"\0")


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(folder: Path, content: bytes, name: str = "m.so") -> Path:
    numbers = ",".join(map(str, content))
    source = f'const unsigned char code[] __attribute__((section(".nv_fatbin"), used, aligned(8))) = {{{numbers}}};'
    return build(folder, name, source)


TWO = (
    container(entry(CUBIN, 80), entry(CUBIN, 90, exact=True)) + bytes(16) + container(entry(PTX, 80, (8, 7)))
)


def test_all_entries_of_all_containers_are_read(tmp_path: Path) -> None:
    with ElfFile(str(library(tmp_path, TWO))) as file:
        assert list(entries_of(file)) == [
            Entry(ptx=False, architecture=80, isa=(0, 0), exact=False),
            Entry(ptx=False, architecture=90, isa=(0, 0), exact=True),
            Entry(ptx=True, architecture=80, isa=(8, 7), exact=False),
        ]


def test_other_kinds_of_entries_are_skipped(tmp_path: Path) -> None:
    with ElfFile(str(library(tmp_path, container(entry(8, 90), entry(CUBIN, 90))))) as file:
        assert [found.architecture for found in entries_of(file)] == [90]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_section_ends_the_reading(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(TWO)
    for _ in range(chance.choice((1, 4))):
        content[chance.randrange(len(content))] = chance.choice((0, 255, chance.randrange(256)))
    # The compiler would take its time for each: the bytes are put where a sound section lies.
    sound = library(tmp_path, TWO).read_bytes()
    (tmp_path / "m.so").write_bytes(sound.replace(TWO, bytes(content)))
    with ElfFile(str(tmp_path / "m.so")) as file:
        assert len(list(entries_of(file))) < 100


@pytest.mark.parametrize(
    ("code", "capability", "runs"),
    [
        (GpuCode("cubin", 90), 90, True),
        (GpuCode("cubin", 80), 86, True),
        (GpuCode("cubin", 86), 80, False),
        (GpuCode("cubin", 80), 90, False),
        (GpuCode("cubin", 100), 103, True),
        (GpuCode("cubin", 90, exact=True), 90, True),
        (GpuCode("ptx", 80, (8, 0)), 120, True),
        (GpuCode("ptx", 90, (8, 0), exact=True), 100, False),
        (GpuCode("ptx", 90, (8, 0)), 80, False),
    ],
)
def test_architecture_compatibility(code: GpuCode, capability: int, runs: bool) -> None:
    assert code.runs_on(capability) is runs


def look(path: Path, *devices: Device, **changes: object) -> PackagesCode | Absent:
    extension = replace(Extension(str(path), "flash-attn", "2.8.3", cuda=True), **changes)
    found = packages_code.collect(Extensions((extension,), 1), Gpus(devices))
    assert isinstance(found, PackagesCode | Absent)
    return found


def test_reading_stops_once_every_gpu_is_supported(tmp_path: Path) -> None:
    path = library(tmp_path, TWO)
    assert look(path, H200) == PackagesCode(
        (
            PackageCode(
                "flash-attn", "2.8.3", str(path), (GpuCode("cubin", 80), GpuCode("cubin", 90, exact=True))
            ),
        )
    )
    assert len(look(path, H200, B200).files[0].code) == 3


def test_cached_result_equals_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = library(tmp_path, TWO)
    first = look(path, B200)
    monkeypatch.setattr("verl_doctor.toolkit.collectors.kernels.gpu_code.entries_of", None)
    assert look(path, B200) == first


def test_only_cuda_files_of_other_vendors_are_read(tmp_path: Path) -> None:
    path = library(tmp_path, TWO)
    assert look(path, H200, cuda=False) == PackagesCode(())
    assert look(path, H200, package="nvidia-cublas-cu12") == PackagesCode(())
    assert isinstance(look(path, replace(H200, capability="")), Absent)


def test_fact_survives_json() -> None:
    fact = PackagesCode((PackageCode("a", "1", "/a.so", (GpuCode("ptx", 80, (8, 7)),)),))
    keep(fact, "key")
    assert recall(PackagesCode, "key") == fact
    assert asdict(fact)["files"][0]["code"][0]["isa"] == (8, 7)
