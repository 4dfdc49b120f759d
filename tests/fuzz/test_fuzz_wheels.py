"""Damaged wheels and index pages: each is read or refused in a sentence, and nothing is written elsewhere."""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path

import pytest
from fuzz.mutate import mutants
from support.index_server import IndexServer, wheel
from support.trying import ROUNDS

from verl_doctor.toolkit.index.listing import NoListing, PackageIndex
from verl_doctor.toolkit.index.page import WheelFile, wheels_on_page
from verl_doctor.toolkit.index.settings import IndexSettings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.index.wheel_sources import WheelError, WheelSources

pytestmark = pytest.mark.slow

COUNT = 600
NAME, WHOLE = wheel(
    "vllm", "0.12.0", {"vllm/__init__.py": "x = 1\n" * 50, "vllm/a/b.py": "", "vllm/_C.so": "ELF"}
)


def in_one_sentence(error: Exception) -> None:
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)
    assert len(str(error)) < 400


def test_damaged_archives_are_read_or_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    refused = 0
    sources = WheelSources(Web(IndexSettings()))
    for seed, damaged in mutants([WHOLE], COUNT // 4, 11):
        path = tmp_path / NAME
        path.write_bytes(damaged)
        os.utime(path, ns=(seed, seed))
        try:
            sources.of(WheelFile(NAME, str(path)))
        except WheelError as error:
            refused += 1
            in_one_sentence(error)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", NAME], seed
    assert COUNT * ROUNDS // 16 < refused < COUNT * ROUNDS // 4, "some are damaged where nobody looks"


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    sources = WheelSources(Web(IndexSettings()))
    for end in range(0, len(WHOLE), 7):
        path = tmp_path / NAME
        path.write_bytes(WHOLE[:end])
        with pytest.raises(WheelError) as raised:
            sources.of(WheelFile(NAME, str(path)))
        in_one_sentence(raised.value)


def test_damaged_directory_on_a_server_is_read_or_refused() -> None:
    chance = random.Random(7)
    directory = WHOLE.rindex(b"PK\x01\x02", 0, WHOLE.index(b"PK\x05\x06"))
    with IndexServer([(NAME, WHOLE)]) as index:
        settings = IndexSettings(indexes=(index.url,), environ=os.environ)
        web = Web(settings)
        (found,) = PackageIndex(settings, web).listing("vllm").wheels
        for number in range(150):
            damaged = bytearray(WHOLE)
            for _ in range(chance.choice((1, 2, 8))):
                damaged[chance.randrange(directory - 200, len(WHOLE))] = chance.randrange(256)
            index.wheels[NAME] = bytes(damaged)
            try:
                WheelSources(web).of(WheelFile(NAME, found.url, f"{number:064x}"))
            except WheelError as error:
                in_one_sentence(error)
        web.close()


def test_damaged_pages_are_read_or_refused() -> None:
    with IndexServer([(NAME, WHOLE)]) as index:
        samples = {}
        for index.json in (True, False):
            kind, content = index.page("vllm")
            samples[kind] = content
        for kind, content in samples.items():
            for seed, damaged in mutants([content], COUNT, 13):
                try:
                    found = wheels_on_page(damaged, kind, index.url, "vllm")
                except ValueError:
                    continue
                assert all(
                    wheel.filename.startswith("vllm-") and "/" not in wheel.filename for wheel in found
                ), seed


def test_servers_with_invalid_http_are_abandoned(tmp_path: Path) -> None:
    for _, answer in mutants(
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/html\r\n\r\nhello"], 200, 17
    ):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()

            def speak(response: bytes = answer, server: socket.socket = server) -> None:
                client, _ = server.accept()
                with client:
                    client.recv(65536)
                    client.sendall(response)

            thread = threading.Thread(target=speak, daemon=True)
            thread.start()
            settings = IndexSettings(
                indexes=(f"http://127.0.0.1:{server.getsockname()[1]}/simple",), environ={}
            )
            web = Web(settings)
            try:
                PackageIndex(settings, web).listing("vllm")
            except NoListing as error:
                in_one_sentence(error)
            web.close()
            thread.join()
