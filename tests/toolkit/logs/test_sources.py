"""Opening logs: content before the first line of a log truncated while being written."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from verl_doctor.toolkit.logs import sources
from verl_doctor.toolkit.logs.reading import diagnose
from verl_doctor.toolkit.logs.sources import Source, UnreadableError, opened

SAID = b"fine\nOSError: [Errno 24] Too many open files\n"


def content(path: Path | None) -> bytes:
    with opened(Source("run.log", path)) as read:
        return b"".join(iter(lambda: read(1 << 20), b""))


@pytest.mark.parametrize("nuls", [1, 8192, 3_000_000])
def test_leading_nul_bytes_of_a_truncated_log_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nuls: int
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"\0" * nuls + SAID)
    assert content(path) == SAID
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert content(None) == SAID


def test_sparse_hole_is_skipped_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with path.open("wb") as file:
        file.seek(200 << 30)
        file.write(SAID)
    assert content(path) == SAID


def test_file_of_nul_bytes_is_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_NULS", 1 << 24)
    for path, size in ((tmp_path / "run.log", 20_000), (Path("/dev/zero"), 0)):
        if size:
            path.write_bytes(b"\0" * size)
        with pytest.raises(UnreadableError, match="not text"):
            content(path)


def packed_with_zstd(text: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=text, capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "packed",
    [
        bz2.compress(b"Error\n" * 999)[:-9],
        lzma.compress(b"Error\n"),
        gzip.compress(gzip.compress(b"Error\n")),
    ],
    ids=["bzip2", "xz", "gzip twice"],
)
def test_unsupported_compression_is_not_text(tmp_path: Path, packed: bytes) -> None:
    (tmp_path / "run.log").write_bytes(packed)
    with pytest.raises(UnreadableError, match="not text"):
        content(tmp_path / "run.log")


@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd here")
def test_complete_blocks_of_a_truncated_zst_are_read(tmp_path: Path) -> None:
    lines = random.Random(1).randbytes(1 << 20).hex().encode()
    log = tmp_path / "run.zst"
    log.write_bytes(packed_with_zstd(b"ValueError: first\n" + lines)[:-1000])
    with opened(Source("run.zst", log)) as read:
        blocks: list[bytes] = []
        with pytest.raises(EOFError):
            blocks.extend(iter(lambda: read(1 << 20), b""))
    content = b"".join(blocks)
    assert content.startswith(b"ValueError: first\n")
    assert len(content) > 1 << 20


@pytest.mark.slow
def test_decompression_bomb_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_UNSUSPICIOUS", 1 << 20)
    log = tmp_path / "run.log.gz"
    log.write_bytes(gzip.compress(b"ValueError: first\n" + b"\0" * (16 << 20)))
    answer = diagnose([Source("run.log.gz", log)])
    assert answer.size < 4 << 20
    assert answer.unread == ("run.log.gz",)
    assert any("which no log does" in note for note in answer.notes)


@pytest.mark.slow
def test_highly_compressible_log_is_not_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_UNSUSPICIOUS", 1 << 20)
    log = tmp_path / "run.log.gz"
    log.write_bytes(
        gzip.compress(b"".join(b"step:%d - actor/entropy:0.4%d\n" % (n, n * n) for n in range(30_000)))
    )
    assert diagnose([Source("run.log.gz", log)]).unread == ()


def test_endless_pipe_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_READ", 1 << 20)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["bash", "-c", f"yes 'ValueError: x' > {tmp_path / 'pipe'}"]) as writer:
        answer = diagnose([Source("pipe", tmp_path / "pipe")])
        assert writer.wait(60) != 0  # it has no reader
    assert answer.notes[0] == "pipe could not be read to its end: only its first 1.0 MiB were read"
    assert answer.unread == ("pipe",)


def test_pipe_is_waited_for_with_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PIPE_TIMEOUT", 0.05)
    os.mkfifo(tmp_path / "pipe")
    source = Source("pipe", tmp_path / "pipe")
    assert diagnose([source]).notes == (
        "pipe was skipped: it is a pipe to which nothing was written for 0 s",
    )
    monkeypatch.setattr(sources, "_PIPE_TIMEOUT", 20.0)
    writer = subprocess.Popen(["bash", "-c", f"sleep 0.1; echo ValueError: x > {tmp_path / 'pipe'}"])
    assert diagnose([source]).files == ("pipe",)
    assert writer.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["name in gzip", "members of gzip"])
def test_what_unpacks_to_nothing_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sources, "_EMPTY", 1 << 18)
    path = tmp_path / "log"
    packed = {
        "name in gzip": b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * (1 << 20),
        "members of gzip": gzip.compress(b"") * 30_000,
    }[kind]
    path.write_bytes(packed)
    with pytest.raises(UnreadableError, match=r"of it unpack to nothing"):
        content(path)


def test_content_behind_empty_members_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"") * 1000 + gzip.compress(b"ValueError: x\n"))
    assert content(path) == b"ValueError: x\n"
