"""Shared by the tests of the scoreboard: each file has a predictor of its own, so that several processes share its cases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from verdict.predict import Predictor, files_read_once


@pytest.fixture(scope="module")
def predictor() -> Iterator[Predictor]:
    """Its folder has a short name: Ray's sockets would lie there. What is read of installed sources is kept for all cases."""
    with (
        tempfile.TemporaryDirectory(prefix="v") as folder,
        pytest.MonkeyPatch.context() as patch,
        files_read_once(),
    ):
        patch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        yield Predictor(Path(folder))
