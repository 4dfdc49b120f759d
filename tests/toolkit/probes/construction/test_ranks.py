"""A rank's share of a tensor and of a module's units. The rest needs torch: tests/end_to_end/test_world_real.py."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from verl_doctor.toolkit.probes.construction import ranks


@dataclass(frozen=True)
class Rows:
    """A tensor of one dimension: its first row, and how many."""

    first: int
    number: int

    def size(self, _dim: int) -> int:
        return self.number

    def narrow(self, _dim: int, begin: int, number: int) -> Rows:
        return Rows(self.first + begin, number)


@pytest.mark.parametrize(
    ("rows", "ranks_", "index", "found"),
    [
        (8, 4, 0, Rows(0, 2)),
        (8, 4, 3, Rows(6, 2)),
        (7, 4, 0, Rows(0, 2)),
        (7, 4, 3, Rows(6, 1)),
        (5, 4, 3, Rows(5, 0)),
        (3, 1024, 0, Rows(0, 1)),
        (3, 1024, 1023, Rows(3, 0)),
    ],
)
def test_part_matches_torch_chunk(rows: int, ranks_: int, index: int, found: Rows) -> None:
    chunks = ranks._Chunks(Rows(0, rows), ranks_, 0)
    assert (len(chunks), chunks[index]) == (ranks_, found)


@pytest.mark.parametrize(("sizes", "found"), [([], 0), ([5], 5), ([3, 4, 2, 5], 9)])
def test_outermost_unit_stays_while_others_are_gathered_in_turn(sizes: list[int], found: int) -> None:
    assert ranks._at_once(sizes) == found


def test_model_without_a_dtype_computes_in_sixteen_bits() -> None:
    assert ranks._width(None) == 2
    assert ranks._width(SimpleNamespace(param_dtype=SimpleNamespace(itemsize=4))) == 4


def test_mesh_is_cached_by_its_dimensions() -> None:
    recorder = ranks.Recorder()
    mesh = SimpleNamespace(mesh_dim_names=("ddp", "fsdp"), ndim=2, size=lambda dim: (16, 8)[dim])
    recorder.mesh("actor", mesh)
    recorder.mesh("actor, sequences", None)
    assert recorder.meshes == {"actor": {"ddp": 16, "fsdp": 8}}
