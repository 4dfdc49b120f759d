"""Shared by the tests of the scoreboard: several processes share its cases, and each reads what all of its cases need once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from verdict.predict import Predictor, files_read_once


@pytest.fixture(scope="session")
def predictor_of_process() -> Iterator[Predictor]:
    """Its folder has a short name: Ray's sockets would lie there."""
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        yield Predictor(Path(folder))


@pytest.fixture(scope="module")
def predictor(predictor_of_process: Predictor, shared_cache: Path) -> Iterator[Predictor]:
    """What is read of installed sources is kept for all cases."""
    with pytest.MonkeyPatch.context() as patch, files_read_once():
        patch.setenv("XDG_CACHE_HOME", str(shared_cache))
        yield predictor_of_process
