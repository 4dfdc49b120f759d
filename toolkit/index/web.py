"""HTTP for a package index: pages, and byte ranges of large files over persistent connections.

It uses only the standard library: the doctor often runs in the environment that it examines, where every
further package may be another conflict.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urljoin

from verl_doctor.toolkit.index.access import Access, WebError, shown
from verl_doctor.toolkit.index.settings import IndexSettings
from verl_doctor.toolkit.text import harmless

_SILENCE = 15.0  # seconds without a byte
_LONGEST_PAGE = 60.0  # seconds
_LONGEST_PART = 300.0
_MOST_REDIRECTS = 5
_CHUNK = 1 << 18
_BUSY = frozenset({429, 502, 503, 504})
_PAUSE = 1.0  # seconds before a busy server is queried again
_HEADERS = {"User-Agent": "verl-doctor", "Accept-Encoding": "identity"}
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True)
class Page:
    """A page, and its final address after redirects."""

    url: str
    content_type: str
    content: bytes


@dataclass(frozen=True)
class Part:
    """Bytes of a file on a server: their start, and the length of the file.

    `tag` changes when the file does.
    """

    content: bytes
    start: int
    total: int
    tag: str


class Exchange:
    """One request and its response. The connection is reused if the response was read to its end."""

    def __init__(
        self,
        web: Web,
        url: str,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        timer: threading.Timer,
    ) -> None:
        self.url = url
        self.response = response
        self._web = web
        self._connection = connection
        self._timer = timer

    def read(self, most: int) -> bytes:
        """Return the content, up to one byte more than `most`. Raises WebError."""
        if self.response.headers.get("Content-Encoding", "identity") != "identity":
            raise WebError(f"{shown(self.url)} is compressed, which was not requested")
        try:
            content = self.response.read(most + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WebError(f"{shown(self.url)} broke off: {error_text(error)}") from None
        self._web.received += len(content)
        if len(content) <= most and self.response.length:
            raise WebError(f"{shown(self.url)} broke off {self.response.length} bytes before its end")
        return content

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of a large file, without a limit on the total.

        Raises WebError if it ends too early.
        """
        self._timer.cancel()
        try:
            while chunk := self.response.read(_CHUNK):
                self._web.received += len(chunk)
                yield chunk
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WebError(f"{shown(self.url)} broke off: {error_text(error)}") from None
        if self.response.length:
            raise WebError(f"{shown(self.url)} broke off {self.response.length} bytes before its end")

    def end(self) -> None:
        """Keep the connection, or close it if something is left unread."""
        self._timer.cancel()
        if self.response.isclosed() and not self.response.will_close:
            self._web.keep(self.url, self._connection)
        else:
            self.response.close()
            self._connection.close()


class Web:
    """Queries servers.

    Several threads may do so at the same time; each connection serves one of them at a time.
    """

    def __init__(self, settings: IndexSettings) -> None:
        self._access = Access(settings)
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()
        self.received = 0
        """Bytes of content so far."""

    def page(self, url: str, accept: str, most: int) -> Page:
        """Fetch a page of at most `most` bytes. Raises WebError."""
        exchange = self._query(url, {"Accept": accept}, _LONGEST_PAGE)
        try:
            if exchange.response.status != http.client.OK:
                raise _refused(exchange)
            content = exchange.read(most)
            if len(content) > most:
                raise WebError(f"{shown(url)} is larger than {most} bytes, more than any index page")
            return Page(exchange.url, exchange.response.headers.get("Content-Type", ""), content)
        finally:
            exchange.end()

    def part(self, url: str, span: str) -> Part | Exchange:
        """Fetch a range, for instance "0-99" or "-100". Raises WebError.

        A server without range support returns the whole file: that exchange is returned, to be read further
        or ended.
        """
        exchange = self._query(url, {"Range": f"bytes={span}"}, _LONGEST_PART)
        if exchange.response.status == http.client.OK:
            return exchange
        try:
            if exchange.response.status != http.client.PARTIAL_CONTENT:
                raise _refused(exchange)
            start, end, total = _stated(exchange, span)
            content = exchange.read(end - start + 1)
            if len(content) != end - start + 1:
                raise WebError(f"{shown(url)} sent {len(content)} bytes instead of {end - start + 1}")
            return Part(content, start, total, exchange.response.headers.get("ETag", ""))
        finally:
            exchange.end()

    def close(self) -> None:
        """Close the persistent connections."""
        with self._lock:
            for connections in self._idle.values():
                while connections:
                    connections.pop().close()

    def keep(self, url: str, connection: http.client.HTTPConnection) -> None:
        """Keep an idle connection for reuse."""
        where = self._access.known(url)
        with self._lock:
            self._idle.setdefault((where.scheme, where.netloc), []).append(connection)

    def _query(self, url: str, headers: Mapping[str, str], limit: float) -> Exchange:
        """Send a request, and follow redirects."""
        for _ in range(_MOST_REDIRECTS):
            exchange = self._sent(url, headers, limit)
            target = exchange.response.headers.get("Location", "")
            if exchange.response.status not in {301, 302, 303, 307, 308} or not target:
                return exchange
            exchange.end()
            url = urljoin(exchange.url, target)
        raise WebError(f"{shown(url)} redirects endlessly")

    def _sent(self, url: str, headers: Mapping[str, str], limit: float) -> Exchange:
        """Send one request.

        It is sent again if the server is busy or has closed a kept connection meanwhile.
        """
        where = self._access.known(url)
        plain = where.geturl()
        for last in (False, True):
            with self._lock:
                idle = self._idle.get((where.scheme, where.netloc))
                kept = idle.pop() if idle and not last else None
            connection = kept or self._access.connection(where, _SILENCE)
            timer = _deadline(connection, limit)
            try:
                line, login = self._access.request(where)
                connection.request("GET", line, headers={**_HEADERS, **login, **headers})
                response = connection.getresponse()
            except (OSError, http.client.HTTPException, ValueError) as error:
                timer.cancel()
                connection.close()
                if kept is None:
                    raise WebError(f"{shown(plain)} cannot be fetched: {error_text(error)}") from None
                continue
            exchange = Exchange(self, plain, connection, response, timer)
            if response.status not in _BUSY or last:
                return exchange
            exchange.end()
            time.sleep(_PAUSE)
        raise WebError(f"{shown(plain)} cannot be fetched")


def _stated(exchange: Exchange, span: str) -> tuple[int, int, int]:
    """Return the first and last byte that the server declares, and the length of the file.

    They must be those requested.
    """
    stated = _CONTENT_RANGE.fullmatch(exchange.response.headers.get("Content-Range", ""))
    if stated is None:
        raise WebError(
            f"{shown(exchange.url)} responds to a range request without stating which bytes it sends"
        )
    start, end, total = map(int, stated.groups())
    first, _, last = span.partition("-")
    requested = (int(first), min(int(last), total - 1)) if first else (max(0, total - int(last)), total - 1)
    if (start, end) != requested:
        raise WebError(
            f"{shown(exchange.url)} sends bytes {start} to {end} of {total}, but {requested[0]} to "
            f"{requested[1]} were requested"
        )
    return start, end, total


def _refused(exchange: Exchange) -> WebError:
    status = exchange.response.status
    meaning = {
        401: "it requires a user and a password: put them into the index URL or ~/.netrc",
        403: "it denies access: put a user and a password into the index URL or ~/.netrc",
        404: "it does not exist",
    }.get(status, http.client.responses.get(status, "not a valid response of an index").lower())
    return WebError(f"{shown(exchange.url)} responds with {status}: {meaning}", status)


def error_text(error: BaseException) -> str:
    """Describe an error in a few words."""
    if isinstance(error, TimeoutError):
        return f"no data for {_SILENCE:.0f} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); PIP_CERT names a file with your own"
    if isinstance(error, http.client.IncompleteRead):
        return f"only {len(error.partial)} bytes arrived"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return harmless(f"{type(error).__name__}: {error}".strip(": \r\n"))[:200]


def _deadline(connection: http.client.HTTPConnection, limit: float) -> threading.Timer:
    """End a request that takes longer than `limit` seconds, even if bytes trickle in."""

    def end() -> None:
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limit, end)
    timer.daemon = True
    timer.start()
    return timer
