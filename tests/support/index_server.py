"""A package index for tests: hand-written wheels, on a server that supports ranges, refuses them, or sends wrong ones."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


def wheel(
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    requires: Iterable[str] = (),
    python: str = ">=3.9",
    *,
    padding: int = 0,
    tag: str = "py3-none-any",
) -> tuple[str, bytes]:
    """Return a wheel's name and bytes. `padding` are bytes of a member that nothing reads."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)  # of 1980, not of now
        if padding:
            archive.writestr(zipfile.ZipInfo(f"{name}/big.bin"), b"\x01" * padding)
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"behind/{path}"), text, zipfile.ZIP_DEFLATED)
        about = zipfile.ZipInfo(f"{stem}.dist-info/METADATA")
        archive.writestr(about, "\n".join(metadata) + "\n\n", zipfile.ZIP_DEFLATED)
    return f"{stem}-{tag}.whl", content.getvalue()


def installable(
    name: str,
    version: str,
    files: Mapping[str, str],
    requires: Iterable[str] = (),
    extras: Iterable[str] = (),
) -> tuple[str, bytes]:
    """Return the name and bytes of a wheel that pip and uv install."""
    stem = f"{name.replace('-', '_')}-{version}"
    fields = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    fields += [f"Provides-Extra: {extra}" for extra in extras] + [
        f"Requires-Dist: {line}" for line in requires
    ]
    content = {path: text.encode() for path, text in files.items()}
    content[f"{stem}.dist-info/METADATA"] = ("\n".join(fields) + "\n\n").encode()
    content[f"{stem}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    for path, body in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(body)}")
    content[f"{stem}.dist-info/RECORD"] = "\n".join([*rows, f"{stem}.dist-info/RECORD,,", ""]).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheels:
        for path, body in content.items():
            wheels.writestr(path, body)
    return f"{stem}-py3-none-any.whl", archive.getvalue()


class IndexServer:
    """Serves /simple/PROJECT/ and /files/NAME. Its attributes select faults."""

    def __init__(self, wheels: Iterable[tuple[str, bytes]]) -> None:
        self.wheels = dict(wheels)
        self.ranges = True
        self.suffixes = True
        self.json = True
        self.hashes = True
        self.lie = ""
        self.status = 0
        self.login = ""
        self.yanked: dict[str, str] = {}
        self.python: dict[str, str] = {}
        self.redirect_to = ""
        self.asked: list[tuple[str, str]] = []
        self.logins: list[str] = []
        self.sent = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple"

    def __enter__(self) -> IndexServer:  # noqa: PYI034 - Self is newer than Python 3.10
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self, project: str) -> tuple[str, bytes]:
        mine = {
            name: content
            for name, content in self.wheels.items()
            if name.split("-")[0] == project.replace("-", "_")
        }
        digest = {name: hashlib.sha256(content).hexdigest() for name, content in mine.items()}
        if self.json:
            files = [
                {
                    "filename": name,
                    "url": f"../../files/{name}",
                    "hashes": {"sha256": digest[name]} if self.hashes else {},
                    "requires-python": self.python.get(name),
                    "yanked": self.yanked.get(name, False),
                }
                for name in mine
            ]
            return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()
        rows = [
            f'<a href="../../files/{name}{f"#sha256={digest[name]}" if self.hashes else ""}"'
            + (
                f' data-requires-python="{self.python[name].replace(">", "&gt;")}"'
                if name in self.python
                else ""
            )
            + (f' data-yanked="{self.yanked[name]}"' if name in self.yanked else "")
            + f">{name}</a>"
            for name in mine
        ]
        return "text/html", f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>".encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers.get("Range", "")))
                given = self.headers.get("Authorization", "")
                index.logins.append(given)
                if index.login and given != f"Basic {base64.b64encode(index.login.encode()).decode()}":
                    return self.answer(401, b"who are you?")
                if index.status:
                    return self.answer(index.status, b"no")
                if index.redirect_to and self.path.startswith("/simple/"):
                    return self.answer(302, b"", {"Location": index.redirect_to + self.path})
                kind, _, rest = self.path.strip("/").partition("/")
                if kind == "simple":
                    content_type, content = index.page(rest)
                    return self.answer(200, content, {"Content-Type": content_type})
                if rest not in index.wheels:
                    return self.answer(404, b"")
                return self.file(index.wheels[rest])

            def file(self, content: bytes) -> None:
                wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
                if not wanted or not index.ranges:
                    return self.answer(200, content)
                total = len(content)
                if wanted[1]:
                    start, end = int(wanted[1]), min(int(wanted[2] or total - 1), total - 1)
                elif index.suffixes:
                    start, end = max(0, total - int(wanted[2])), total - 1
                else:
                    return self.answer(501, b"")
                body = content[start : end + 1]
                stated = f"bytes {start}-{end}/{total}"
                match index.lie:
                    case "place":
                        stated = f"bytes {start + 1}-{end + 1}/{total}"
                    case "nothing":
                        stated = ""
                    case "short":
                        body = body[: len(body) // 2]
                    case "length":
                        stated = f"bytes {start}-{end}/{total + 7}"
                    case "content":
                        body = bytes(len(body))
                headers = {"Content-Range": stated} if stated else {}
                return self.answer(206, body, headers)

            def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
                self.send_response(status)
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                length = len(body) + (1000 if index.lie == "hang up" else 0)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                index.sent += len(body)
                self.wfile.write(body)
                self.close_connection = index.lie == "hang up"

        return Handler
