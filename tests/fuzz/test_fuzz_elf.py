"""Damaged libraries: the reader returns what it can, raises nothing and ends."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compiled import build

from verl_doctor.toolkit.sources.elf.elf import ElfFile


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sample")
    build(folder, "libv.so", "int v(void){return 1;}", versions="V_1 { global: v; };")
    source = "extern int v(void), away(void); int PyInit_m(void){return v() + away();}"
    return build(folder, "m.so", source, "-Wl,--hash-style=both", needs=["libv.so"]).read_bytes()


def damaged(sample: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    yield sample[: chance.randrange(len(sample))]
    text = bytearray(sample)
    for _ in range(chance.choice((1, 3, 30))):
        text[chance.randrange(len(text))] = chance.randrange(256)
    yield bytes(text)
    text = bytearray(sample)
    for _ in range(chance.choice((1, 2, 5))):  # a number that is huge, or nearly right
        struct.pack_into("=Q", text, chance.randrange(len(text) // 8 - 1) * 8, chance.choice((2**64 - 1, 2**63, 2**32 - 1, len(text) - 1, 0, chance.getrandbits(16))))  # fmt: skip
    yield bytes(text)
    # Where the headers and the dynamic section lie nearly every byte matters.
    text = bytearray(sample)
    for _ in range(chance.choice((1, 2, 8))):
        text[chance.randrange(0x400)] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
    yield bytes(text)
    yield sample[:64] + chance.randbytes(chance.randrange(4000))


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1000), marks=pytest.mark.slow)])
def test_damaged_files_raise_nothing_and_are_read_in_finite_time(
    tmp_path: Path, sample: bytes, seeds: range
) -> None:
    path = tmp_path / "damaged.so"
    for seed in seeds:
        for number, content in enumerate(damaged(sample, seed)):
            path.write_bytes(content)
            try:
                with ElfFile(str(path)) as file:
                    file.undefined()
                    file.exports("PyInit_m")
                    file.exports("v", "V_1")
                    file.exports_starting("P")
                    file.section(".dynsym")
                    assert all(isinstance(name, str) for name in file.header.needed)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {number}") from error
