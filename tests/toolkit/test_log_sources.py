"""How logs are opened: what stands before the first word of one that was emptied while somebody wrote it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from verl_doctor.toolkit.log_sources import Source, UnreadableError, opened

SAID = b"fine\nOSError: [Errno 24] Too many open files\n"


def content(path: Path | None) -> bytes:
    with opened(Source("run.log", path)) as read:
        return b"".join(iter(lambda: read(1 << 20), b""))


@pytest.mark.parametrize("nuls", [1, 8192, 3_000_000])
def test_a_log_that_was_emptied_while_it_was_written_is_read_behind_its_nuls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nuls: int
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"\0" * nuls + SAID)
    assert content(path) == SAID
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert content(None) == SAID


def test_a_hole_is_passed_over_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with path.open("wb") as file:
        file.seek(200 << 30)
        file.write(SAID)
    assert content(path) == SAID


def test_a_file_that_holds_nothing_else_is_no_text(tmp_path: Path) -> None:
    for path, size in ((tmp_path / "run.log", 20_000), (Path("/dev/zero"), 0)):
        if size:
            path.write_bytes(b"\0" * size)
        with pytest.raises(UnreadableError, match="no text"):
            content(path)
