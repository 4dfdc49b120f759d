"""An exchange with a child process: an order on its stdin, its lines as they arrive; closing stdin tells it to stop."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Iterator
from subprocess import Popen
from typing import IO

_PIECE = 1024 * 1024  # bytes that are read at a time
_KEPT = 4096  # bytes of an error message that are kept
_LAST_WORDS = (
    0.2  # seconds for its error message after its output ends: a grandchild may hold that stream forever
)


class Dialogue:
    """One running child, its three streams piped. Its order is written while its output is read: it need not read the order."""

    def __init__(self, process: Popen[bytes], order: bytes) -> None:
        self._order = memoryview(order)
        self._complaint = b""
        self._in, self._out, self._err = _piped(process.stdin), _piped(process.stdout), _piped(process.stderr)
        os.set_blocking(self._in.fileno(), False)

    def lines(self, deadline: float) -> Iterator[bytes]:
        """Yield its output, line by line, until it ends or the time is up (`deadline` as of time.monotonic)."""
        buffered = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            selector.register(self._err, selectors.EVENT_READ)
            if self._order:
                selector.register(self._in, selectors.EVENT_WRITE)
            while self._has_more(selector) and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is self._in:
                        if not self._write():
                            selector.unregister(self._in)
                        continue
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._out:
                            deadline = min(deadline, time.monotonic() + _LAST_WORDS)
                    elif key.fileobj is self._out:
                        *whole, buffered = (buffered + piece).split(b"\n")
                        yield from whole
                    else:
                        self._complaint = (self._complaint + piece)[-_KEPT:]

    def stop(self, patience: float) -> None:
        """Close its stdin, and give it some seconds to end by itself."""
        self._order = self._order[:0]
        self._in.close()
        for _ in self.lines(time.monotonic() + patience):
            pass

    def close(self) -> None:
        """Close its streams, once it has ended."""
        for stream in (self._in, self._out, self._err):
            stream.close()

    @property
    def complaint(self) -> str:
        """The last line of its stderr, as far as it was read."""
        lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it printed nothing"

    def _has_more(self, selector: selectors.BaseSelector) -> bool:
        """Whether more output may come."""
        return any(key.events & selectors.EVENT_READ for key in selector.get_map().values())

    def _write(self) -> bool:
        """Write what the pipe accepts now; return whether there is more to write and still a reader."""
        try:
            with contextlib.suppress(BlockingIOError):
                self._order = self._order[os.write(self._in.fileno(), self._order) :]
        except BrokenPipeError:
            self._order = self._order[:0]
        return bool(self._order)


def _piped(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("a dialogue needs all three streams of the child as pipes")
    return stream
