"""A browser made of the Chromium in Qt: a child program, run by the interpreter of an environment that has PyQt6-WebEngine.

It is spoken to as Chromium is with `--remote-debugging-pipe`: it reads messages of the DevTools protocol from descriptor 3 and writes
to descriptor 4, a zero byte behind each. Qt serves the protocol at a port of this machine only, to which all is handed on
(https://doc.qt.io/qt-6/qtwebengine-debugging.html), but for what Qt's has no answer to: a new page, and printing.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from typing import Any

from PyQt6.QtCore import QByteArray, QSocketNotifier, QTimer, QUrl
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWebSockets import QWebSocket
from PyQt6.QtWidgets import QApplication

_READING, _WRITING = 3, 4


class Engine:
    """A hidden page, and the messages to and from it."""

    def __init__(self, address: str) -> None:
        self._rest = b""
        self._view = QWebEngineView()
        self._page = self._view.page()
        self._protocol = QWebSocket()
        self._pipe = QSocketNotifier(_READING, QSocketNotifier.Type.Read)
        self._pipe.setEnabled(False)  # until somebody can hear what it says
        self._pipe.activated.connect(self._read)
        url = QUrl(f"ws://{address}/devtools/page/{self._page.devToolsId()}")
        self._protocol.connected.connect(lambda: self._pipe.setEnabled(True))
        self._protocol.errorOccurred.connect(lambda: QTimer.singleShot(100, lambda: self._protocol.open(url)))
        self._protocol.textMessageReceived.connect(_write)
        self._protocol.open(url)
        self._view.setUrl(QUrl("about:blank"))
        self._view.show()

    def _read(self) -> None:
        piece = os.read(_READING, 1 << 20)
        if not piece:
            QApplication.quit()
        *whole, self._rest = (self._rest + piece).split(b"\0")
        for message in whole:
            self._do(message.decode())

    def _do(self, message: str) -> None:
        asked = json.loads(message)
        if asked["method"] == "Target.createTarget":
            _answer(asked, targetId=self._page.devToolsId())
        elif asked["method"] == "Page.printToPDF":
            self._page.printToPdf(lambda pdf: _answer(asked, data=_base64(pdf)))
        else:
            self._protocol.sendTextMessage(message)


def _base64(printed: QByteArray) -> str:
    return base64.b64encode(printed.data()).decode()


def _answer(asked: dict[str, Any], **result: str) -> None:
    _write(json.dumps({"id": asked["id"], "result": result}))


def _write(message: str) -> None:
    left = message.encode() + b"\0"
    while left:
        left = left[os.write(_WRITING, left) :]


def _free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def main() -> int:
    address = _free_address()
    os.environ |= {
        "QT_QPA_PLATFORM": "offscreen",
        "QT_QUICK_BACKEND": "software",
        "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu --disable-dev-shm-usage",
        "QTWEBENGINE_DISABLE_SANDBOX": "1",  # it has none as root
        "QTWEBENGINE_REMOTE_DEBUGGING": address,
    }
    application = QApplication(sys.argv[:1])
    engine = Engine(address)
    ended = application.exec()
    del engine  # before the application, as Qt wants it
    return ended


if __name__ == "__main__":
    sys.exit(main())
