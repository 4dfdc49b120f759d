"""Reading sources of wheels: by ranges, whole, from a folder, from the cache; and possible faults."""

from __future__ import annotations

import io
import os
import stat
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs
import pytest
from support.index_server import IndexServer, wheel

from verl_doctor.toolkit.index.listing import PackageIndex
from verl_doctor.toolkit.index.page import WheelFile
from verl_doctor.toolkit.index.settings import IndexSettings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.index.wheel_sources import Unpacked, WheelError, WheelSources, prune

BIG = 6_000_000
VLLM = wheel("vllm", "0.12.0", {"vllm/__init__.py": "x = 1\n", "vllm/_C.abi3.so": "ELF"}, padding=BIG)


@pytest.fixture
def index() -> Iterator[IndexServer]:
    with IndexServer([VLLM]) as server:
        yield server


OPENED: list[Web] = []


@pytest.fixture(autouse=True)
def no_connection_stays_open() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def web(settings: IndexSettings) -> Web:
    OPENED.append(Web(settings))
    return OPENED[-1]


class Reader:
    """One doctor: its own connections, the shared cache."""

    def __init__(self, index: IndexServer, **options: bool) -> None:
        self.settings = IndexSettings(indexes=(index.url,), environ=os.environ)
        self.web = web(self.settings)
        self.told: list[str] = []
        self.sources = WheelSources(self.web, self.told.append, **options)
        self.offline = options.get("offline", False)

    def read(self, project: str = "vllm") -> Unpacked:
        (found,) = PackageIndex(self.settings, self.web, offline=self.offline).listing(project).wheels
        return self.sources.of(found)


def home() -> Path:
    return platformdirs.user_cache_path("verl-doctor") / "wheels"


def content(unpacked: Unpacked) -> dict[str, bytes]:
    return {
        str(path.relative_to(unpacked.folder)): path.read_bytes()
        for path in sorted(unpacked.folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".verl-doctor")
    }


def test_only_the_needed_part_of_a_large_wheel_is_fetched(index: IndexServer) -> None:
    reader = Reader(index)
    found = content(reader.read())
    assert found["vllm/__init__.py"] == b"x = 1\n"
    assert "vllm-0.12.0.dist-info/METADATA" in found
    assert "vllm/big.bin" not in found
    assert index.sent < BIG / 4
    assert reader.web.received == index.sent
    assert reader.told == []


def test_large_compiled_module_is_listed_without_its_content(index: IndexServer) -> None:
    name, whole = wheel("other", "1.0", {"other/__init__.py": "", "other/_C.so": os.urandom(400_000)})
    index.wheels[name] = whole
    found = content(Reader(index).read("other"))
    assert found["other/_C.so"] == b""
    assert content(Reader(index).read())["vllm/_C.abi3.so"] == b"ELF"


@pytest.mark.parametrize("hashes", [True, False])
def test_cached_files_are_not_requested_again(index: IndexServer, hashes: bool) -> None:
    index.hashes = hashes
    first = Reader(index).read()
    before = len(index.asked)
    again = Reader(index).read()
    assert [path for path, _ in index.asked[before:]] == ["/simple/vllm/"]
    assert again.folder == first.folder
    index.close()
    assert Reader(index, offline=True).read().folder == first.folder


def test_damaged_cache_entry_is_fetched_again(index: IndexServer) -> None:
    unpacked = Reader(index).read()
    whole = content(unpacked)
    (unpacked.folder / "vllm" / "__init__.py").write_bytes(b"")
    assert content(Reader(index).read()) == whole


def test_missing_wheel_offline_has_a_remedy(index: IndexServer) -> None:
    found = PackageIndex(IndexSettings(indexes=(index.url,)), web(IndexSettings())).listing("vllm").wheels[0]
    with pytest.raises(WheelError, match="run once without --offline"):
        Reader(index, offline=True).sources.of(found)


def test_server_without_range_support_sends_the_whole_wheel_with_a_notice(index: IndexServer) -> None:
    index.ranges = False
    reader = Reader(index)
    assert content(reader.read())["vllm/__init__.py"] == b"x = 1\n"
    assert reader.told == [
        f"{index.host} only sends whole wheels: downloading {VLLM[0]} ({len(VLLM[1]) / 1e6:.0f} MB)"
    ]
    assert len([path for path, _ in index.asked if path.startswith("/files/")]) == 1
    assert not list(home().glob(".download-*"))


def test_no_download_option_refuses_whole_wheels(index: IndexServer) -> None:
    index.ranges = False
    with pytest.raises(WheelError, match="--no-download"):
        Reader(index, download=False).read()


def test_download_with_another_hash_is_refused(index: IndexServer) -> None:
    index.ranges = False
    reader = Reader(index)
    (found,) = PackageIndex(reader.settings, reader.web).listing("vllm").wheels
    index.wheels[VLLM[0]] = wheel("vllm", "0.12.0", {"vllm/__init__.py": "import evil\n"})[1]
    with pytest.raises(WheelError, match="SHA-256 differs"):
        reader.sources.of(found)
    assert not list(home().glob("[0-9a-f]*"))


def test_length_is_queried_without_suffix_ranges(index: IndexServer) -> None:
    index.suffixes = False
    assert content(Reader(index).read())["vllm/__init__.py"] == b"x = 1\n"
    assert index.sent < BIG / 4


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ("place", "were requested"),
        ("nothing", "without stating which bytes"),
        ("short", "instead of|broke off|is damaged"),
        ("length", "were requested|changed while"),
        ("content", "is damaged"),
        ("hang up", "broke off|cannot be fetched|bytes"),
    ],
)
def test_inconsistent_server_response_is_refused(index: IndexServer, lie: str, message: str) -> None:
    reader = Reader(index)
    (found,) = PackageIndex(reader.settings, reader.web).listing("vllm").wheels
    index.lie = lie
    with pytest.raises(WheelError, match=message):
        reader.sources.of(found)
    assert list(home().iterdir()) == []


def test_missing_wheel_is_one_sentence(index: IndexServer) -> None:
    reader = Reader(index)
    (found,) = PackageIndex(reader.settings, reader.web).listing("vllm").wheels
    index.wheels.clear()
    with pytest.raises(WheelError, match="responds with 404: it does not exist"):
        reader.sources.of(found)


def test_wheel_in_a_local_folder_is_read_in_place(tmp_path: Path) -> None:
    (tmp_path / VLLM[0]).write_bytes(VLLM[1])
    settings = IndexSettings(find_links=(str(tmp_path),))
    (found,) = PackageIndex(settings, web(settings)).listing("vllm").wheels
    unpacked = WheelSources(web(settings)).of(found)
    assert content(unpacked)["vllm/__init__.py"] == b"x = 1\n"
    assert (tmp_path / VLLM[0]).read_bytes() == VLLM[1]


def local(tmp_path: Path, whole: bytes, name: str = VLLM[0]) -> WheelFile:
    (tmp_path / name).write_bytes(whole)
    return WheelFile(name, str(tmp_path / name))


def _zip(add: Callable[[zipfile.ZipFile], None]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        add(archive)
    return whole.getvalue()


def _link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("vllm/link.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "whole",
    [
        _zip(lambda archive: archive.writestr("../outside.py", "")),
        _zip(lambda archive: archive.writestr("/etc/outside.py", "")),
        _zip(lambda archive: archive.writestr("vllm/../../outside.py", "")),
        _zip(lambda archive: archive.writestr("C:\\outside.py", "")),
        _zip(lambda archive: archive.writestr(_link(), "/etc/passwd")),
    ],
)
def test_member_with_a_path_outside_is_refused(tmp_path: Path, whole: bytes) -> None:
    with pytest.raises(WheelError, match="written elsewhere"):
        WheelSources(web(IndexSettings())).of(local(tmp_path, whole))
    assert not list(tmp_path.rglob("outside.py"))


def test_file_in_place_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    def add(archive: zipfile.ZipFile) -> None:
        archive.writestr("vllm.py", "")
        archive.writestr("vllm.py/x.py", "")

    with pytest.raises(WheelError, match="cannot be read"):
        WheelSources(web(IndexSettings())).of(local(tmp_path, _zip(add)))


def test_zip64_archives_are_read(tmp_path: Path) -> None:
    def add(archive: zipfile.ZipFile) -> None:
        with archive.open("vllm/__init__.py", "w", force_zip64=True) as file:
            file.write(b"x = 1\n")

    unpacked = WheelSources(web(IndexSettings())).of(local(tmp_path, _zip(add)))
    assert content(unpacked)["vllm/__init__.py"] == b"x = 1\n"


def test_simultaneous_readers_share_one_result(index: IndexServer) -> None:
    found: list[Unpacked] = []
    threads = [threading.Thread(target=lambda: found.append(Reader(index).read())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({unpacked.folder for unpacked in found}) == 1
    assert len(found) == 4
    assert [path.name for path in home().iterdir()] == [found[0].digest]


def test_least_recently_used_wheels_are_evicted(index: IndexServer) -> None:
    index.wheels.update([wheel("other", "1.0", {"other/__init__.py": "y = 2\n"})])
    old, new = Reader(index).read(), Reader(index).read("other")
    prune(most=1)
    assert old.folder.is_dir(), "an hour ago it was used"
    os.utime(old.folder, (time.time() - 7200,) * 2)
    (home() / ".unfinished-x").mkdir()
    os.utime(home() / ".unfinished-x", (1, 1))
    prune(most=1)
    assert [path.name for path in home().iterdir()] == [new.digest]
