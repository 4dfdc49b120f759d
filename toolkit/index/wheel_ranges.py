"""A wheel on a server as a file: `zipfile` reads it by range requests."""

from __future__ import annotations

import io

from verl_doctor.toolkit.index.access import WebError, shown
from verl_doctor.toolkit.index.web import Exchange, Part, Web

# The directory of a vLLM wheel takes 120 to 650 kB (0.8.5 to 0.33.0, measured 2026-11). It is at the end.
_TAIL = 768 * 1024
_STEP = 64 * 1024
# The status codes of servers that do not support "the last N bytes".
_NO_SUFFIX = frozenset({400, 405, 416, 501})


class WholeFileOffered(Exception):  # noqa: N818 - no error: the server has another way
    """The server does not support ranges and has begun to send the whole file."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__("the server does not support ranges")
        self.exchange = exchange


class RangedFile(io.RawIOBase):
    """Reads a file on a server. Fetched bytes are held until they are dropped.

    Opening and reading raise WebError or WholeFileOffered.
    """

    def __init__(self, web: Web, url: str) -> None:
        super().__init__()
        self._web = web
        self._url = url
        self._tag = ""
        self._held: list[Part] = []
        self._position = 0
        try:
            self._tail = self._get(f"-{_TAIL}")
        except WebError as error:
            if error.status not in _NO_SUFFIX:
                raise
            total = self._get("0-0").total
            self._tail = self._get(f"{max(0, total - _TAIL)}-{total - 1}")

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""
        return self._tail.total

    def fetch(self, start: int, end: int) -> None:
        """Fetch the bytes from `start` to `end`, and drop those fetched before. The tail stays."""
        self._held = []
        if start < self._tail.start:
            self._held.append(self._get(f"{start}-{min(end, self._tail.start) - 1}"))

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position. Raises OSError before the beginning, as any file does."""
        position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence] + offset
        if position < 0:
            raise OSError(22, "Invalid argument")
        self._position = position
        return position

    def read(self, size: int | None = -1) -> bytes:
        """Read from the held bytes, and fetch the others."""
        end = self.size if size is None or size < 0 else min(self._position + size, self.size)
        content = b"".join(self._pieces(self._position, end))
        self._position += len(content)
        return content

    def _pieces(self, position: int, end: int) -> list[bytes]:
        pieces = []
        while position < end:
            part = next(
                (
                    part
                    for part in (self._tail, *self._held)
                    if part.start <= position < part.start + len(part.content)
                ),
                None,
            )
            if part is None:
                part = self._get(f"{position}-{min(max(end, position + _STEP), self.size) - 1}")
                self._held.append(part)
            pieces.append(part.content[position - part.start : end - part.start])
            position += len(pieces[-1])
        return pieces

    def _get(self, span: str) -> Part:
        response = self._web.part(self._url, span)
        if isinstance(response, Exchange):
            raise WholeFileOffered(response)
        before = getattr(self, "_tail", response)
        if (response.total, response.tag) != (before.total, before.tag):
            raise WebError(f"{shown(self._url)} was changed while it was read; try again")
        return response
