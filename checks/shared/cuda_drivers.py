"""The driver that each CUDA needs: NVIDIA's table, as of 2026-11."""

from __future__ import annotations

# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, and the CUDA toolkit's
# release notes: every 12.x runs on a driver for 12.0.
MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

# The version of the PTX instruction set that each CUDA introduced: a driver compiles that version and older
# ones. https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes
_CUDA_OF_PTX = {
    (7, 8): (11, 8),
    (8, 0): (12, 0),
    (8, 1): (12, 1),
    (8, 2): (12, 2),
    (8, 3): (12, 3),
    (8, 4): (12, 4),
    (8, 5): (12, 5),
    (8, 6): (12, 7),
    (8, 7): (12, 8),
    (8, 8): (12, 9),
    (9, 0): (13, 0),
    (9, 1): (13, 1),
    (9, 2): (13, 2),
}


def cuda_of_ptx(isa: tuple[int, int]) -> tuple[int, int] | None:
    """The CUDA that introduced a version of PTX; None if the table lacks it."""
    return _CUDA_OF_PTX.get(isa) or ((11, 8) if isa < (7, 8) else None)
