"""Repairs of launch scripts heal what they are offered for: afterwards nothing is found, and no rule that passed finds errors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.trying import thorough
from verdict import case as cases_of
from verdict.heal import Healer, classes
from verdict.predict import files_read_once

CASES, CLASSES = cases_of.cases(), classes()

BY_SAFE_REPAIRS = "entropy_coef list_without_quotes windows_line_ends both_micro_batches mode_sync".split()  # noqa: SIM905
BY_UNSAFE_REPAIRS = "two_gpus_odd_batch lora_rank_1024 sglang".split()  # noqa: SIM905
"""One for each kind of correction. `tests/bench/bench_heal.py` measures all cases."""
USUAL = ("entropy_coef", "windows_line_ends", "two_gpus_odd_batch")


def test_every_class_belongs_to_a_case_and_has_a_reason() -> None:
    named = {**CLASSES.healable, **CLASSES.not_healable}
    assert CASES.keys() >= named.keys()
    assert all(named.values())
    assert len(named) == len(CLASSES.healable) + len(CLASSES.not_healable)


@pytest.fixture(scope="module")
def healer(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Iterator[Healer]:
    """Journals of changes outside of environments lie in a folder of its own; the cases' has a short name, for Ray's sockets."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="v") as folder,
        files_read_once(),
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(shared_cache))
        yield Healer(Path(folder))


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in USUAL else thorough(name) for name in (*BY_SAFE_REPAIRS, *BY_UNSAFE_REPAIRS)]
)
def test_repaired_job_has_no_failures(name: str, healer: Healer) -> None:
    found = healer.heal(CASES[name])
    assert found is not None
    assert (found.by, found.worse) == ("safe" if name in BY_SAFE_REPAIRS else "unsafe", ()), found
