"""An exchange with a child process: requests on its stdin, and its output line by line.

Closing its stdin stops it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections import deque
from collections.abc import Iterator
from subprocess import Popen
from typing import IO

_PIECE = 1024 * 1024  # bytes that are read at a time
_KEPT = 4096  # bytes of an error message that are kept
_LAST_WORDS = (
    0.2  # seconds for its error message after its output ends: a grandchild may hold that stream forever
)


class Dialogue:
    """A running child with three piped streams.

    The request is written while the output is read, so the child need not read it.
    """

    def __init__(self, process: Popen[bytes], request: bytes) -> None:
        self._request = memoryview(request)
        self._errors = b""
        self._incomplete = b""
        self._unread: deque[bytes] = deque()
        self._in, self._out, self._err = _piped(process.stdin), _piped(process.stdout), _piped(process.stderr)
        os.set_blocking(self._in.fileno(), False)

    def send(self, request: bytes) -> None:
        """Add a request. It is written while the output is read."""
        self._request = memoryview(bytes(self._request) + request)

    def lines(self, deadline: float) -> Iterator[bytes]:
        """Yield its output line by line until it ends or the `deadline` (of time.monotonic) passes.

        Lines that are not taken come first in the next call.
        """
        yield from self._taken()
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            selector.register(self._err, selectors.EVENT_READ)
            if self._request:
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
                        *whole, self._incomplete = (self._incomplete + piece).split(b"\n")
                        self._unread.extend(whole)
                        yield from self._taken()
                    else:
                        self._errors = (self._errors + piece)[-_KEPT:]

    def stop(self, patience: float) -> None:
        """Close its stdin, and wait a few seconds for it to end by itself."""
        self._request = self._request[:0]
        self._in.close()
        for _ in self.lines(time.monotonic() + patience):
            pass

    def close(self) -> None:
        """Close its streams, once it has ended."""
        for stream in (self._in, self._out, self._err):
            stream.close()

    @property
    def last_error(self) -> str:
        """The last line of its stderr so far."""
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it printed nothing"

    def _taken(self) -> Iterator[bytes]:
        while self._unread:
            yield self._unread.popleft()

    def _has_more(self, selector: selectors.BaseSelector) -> bool:
        """Return whether more output may come."""
        return any(key.events & selectors.EVENT_READ for key in selector.get_map().values())

    def _write(self) -> bool:
        """Write what the pipe accepts now. Return whether there is more to write and still a reader."""
        try:
            with contextlib.suppress(BlockingIOError):
                self._request = self._request[os.write(self._in.fileno(), self._request) :]
        except BrokenPipeError:
            self._request = self._request[:0]
        return bool(self._request)


def _piped(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("a dialogue needs pipes for all three streams of the child")
    return stream
