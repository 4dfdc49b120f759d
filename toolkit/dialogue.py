"""Speaking with a child: it gets an order, its lines are heard as it says them, and the end of its input is its order to stop."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Iterator
from subprocess import Popen
from typing import IO

_PIECE = 1024 * 1024  # bytes that are read at once
_KEPT = 4096  # bytes of a complaint


class Dialogue:
    """One child that is running, its three streams piped.

    Its order is written aside, for a child that does not read it must not hold us up.
    """

    def __init__(self, process: Popen[bytes], order: bytes) -> None:
        self._process = process
        self._complaint = b""
        self._writer = threading.Thread(target=self._write, args=(order,), name="order", daemon=True)
        self._writer.start()

    def lines(self, deadline: float) -> Iterator[bytes]:
        """What it says, line by line, until it says no more or the time is up (`deadline` as of time.monotonic)."""
        said = b""
        out, complaint = self._process.stdout, self._process.stderr
        if out is None or complaint is None:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            selector.register(complaint, selectors.EVENT_READ)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        selector.unregister(key.fileobj)
                        if key.fileobj is out:
                            return
                    elif key.fileobj is complaint:
                        self._complaint = (self._complaint + piece)[-_KEPT:]
                    else:
                        *whole, said = (said + piece).split(b"\n")
                        yield from whole

    def stop(self, patience: float) -> None:
        """Say that nobody wants more, and let it end by itself for some seconds."""
        _close(self._process.stdin)
        for _ in self.lines(time.monotonic() + patience):
            pass

    def close(self) -> None:
        """Let its streams go, once it has ended."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            _close(stream)
        self._writer.join(1)

    @property
    def complaint(self) -> str:
        """The last line of what it wrote on stderr, as far as it was heard."""
        lines = self._complaint.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"

    def _write(self, order: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.write(order)
                self._process.stdin.flush()


def _close(stream: IO[bytes] | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        if stream is not None:
            stream.close()
