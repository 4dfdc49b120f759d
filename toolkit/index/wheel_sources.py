"""The sources of a wheel, read once and kept in the doctor's own cache under the wheel's SHA-256.

Several doctors may do this at the same time: a folder appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from verl_doctor.toolkit.index.access import WebError, shown
from verl_doctor.toolkit.index.listing import local_path
from verl_doctor.toolkit.index.page import WheelFile
from verl_doctor.toolkit.index.web import Exchange, Web
from verl_doctor.toolkit.index.wheel_members import WheelError, unpack
from verl_doctor.toolkit.index.wheel_ranges import RangedFile, WholeFileOffered
from verl_doctor.toolkit.system import cache, own_folders

_MOST_KEPT = 2_000_000_000  # bytes of unpacked sources, about forty releases of vLLM
_IN_USE = 3600.0  # seconds: anything used more recently is never removed
_MANIFEST = ".verl-doctor.json"
_SMALL_FILE = 100_000


@dataclass(frozen=True)
class Unpacked:
    """The sources of a wheel: the folder that holds its packages and its metadata, and the wheel's digest."""

    wheel: WheelFile
    folder: Path
    digest: str


@dataclass(frozen=True)
class WheelSources:
    """Provides the sources of wheels.

    `announce` receives a sentence before a whole wheel is downloaded. `download` states whether that is
    allowed at all.
    """

    web: Web
    announce: Callable[[str], None] = lambda _: None
    offline: bool = False
    download: bool = True

    def of(self, wheel: WheelFile) -> Unpacked:
        """Return the sources of a wheel. Raises WheelError."""
        try:
            return self._kept(wheel) or self._read(wheel)
        except WebError as error:
            raise WheelError(str(error)) from None
        except OSError as error:
            raise WheelError(f"{wheel.filename} cannot be read: {error.strerror or error}") from None

    def _kept(self, wheel: WheelFile) -> Unpacked | None:
        digest = wheel.sha256 or _learnt(wheel)
        folder = _home() / digest
        if not digest or not _is_sound(folder):
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return Unpacked(wheel, folder, digest)

    def _read(self, wheel: WheelFile) -> Unpacked:
        path = local_path(wheel.url)
        if path is None and self.offline:
            raise WheelError(f"{wheel.filename} is not in the cache; run once without --offline")
        own_folders.made(_home())
        with _unfinished() as folder:
            if path is not None:
                digest = wheel.sha256 or _digest(Path(path))
                unpack(Path(path), wheel.filename, folder)
            else:
                digest = self._fetch(wheel, folder)
            _seal(folder)
            _learn(wheel, digest)
            return Unpacked(wheel, _moved(folder, _home() / digest), digest)

    def _fetch(self, wheel: WheelFile, folder: Path) -> str:
        """Read a wheel on a server, by ranges if supported. Return its digest."""
        try:
            with RangedFile(self.web, wheel.url) as file:
                unpack(file, wheel.filename, folder)
                return wheel.sha256 or _digest_of_directory(folder)
        except WholeFileOffered as offer:
            try:
                return self._download(wheel, offer.exchange, folder)
            finally:
                offer.exchange.end()

    def _download(self, wheel: WheelFile, exchange: Exchange, folder: Path) -> str:
        length = exchange.response.length
        size = f"{length / 1e6:.0f} MB" if length is not None else "of unknown size"
        where = shown(exchange.url).split("/")[2]
        if not self.download:
            raise WheelError(
                f"{where} only sends whole wheels, and --no-download forbids downloading "
                f"{wheel.filename} ({size})"
            )
        self.announce(f"{where} only sends whole wheels: downloading {wheel.filename} ({size})")
        with tempfile.NamedTemporaryFile(dir=_home(), prefix=".download-", suffix=".whl") as file:
            digest = hashlib.sha256()
            for chunk in exchange.chunks():
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            if wheel.sha256 and digest.hexdigest() != wheel.sha256:
                raise WheelError(
                    f"{wheel.filename} is not the file that the index describes: its SHA-256 differs"
                )
            unpack(Path(file.name), wheel.filename, folder)
        return digest.hexdigest()


def prune(most: int = _MOST_KEPT) -> None:
    """Remove the least recently used sources until `most` bytes are left, and unfinished ones."""
    now, kept = time.time(), []
    with contextlib.suppress(OSError):
        for folder in _home().iterdir():
            with contextlib.suppress(OSError):
                used = folder.stat().st_mtime
                if folder.name.startswith("."):
                    if now - used > _IN_USE:
                        _remove(folder)
                else:
                    kept.append((used, _size(folder), folder))
    total = sum(size for _, size, _ in kept)
    for used, size, folder in sorted(kept):
        if total <= most or now - used <= _IN_USE:
            return
        _remove(folder)
        total -= size


def _home() -> Path:
    return platformdirs.user_cache_path("verl-doctor") / "wheels"


def _remove(path: Path) -> None:
    """Rename a folder before removing it, so that no process finds it half removed."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            gone = path.with_name(f".removed-{path.name}-{os.getpid()}")
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        else:
            path.unlink()


@contextlib.contextmanager
def _unfinished() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=_home(), prefix=".unfinished-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moved(folder: Path, to: Path) -> Path:
    """Move a finished folder into place, unless another doctor was faster."""
    try:
        folder.rename(to)
    except OSError:
        if not _is_sound(to):
            _remove(to)
            folder.rename(to)
    return to


def _listed(folder: Path) -> tuple[str, int]:
    """Return a digest of the names and sizes of all files below a folder, and the sum of the sizes."""
    digest, total = hashlib.sha256(), 0
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name != _MANIFEST:
                path = os.path.join(where, name)  # noqa: PTH118 - thousands of them
                size = os.stat(path).st_size  # noqa: PTH116
                total += size
                digest.update(f"{os.path.relpath(path, folder)}\0{size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest(), total


def _seal(folder: Path) -> None:
    listed, size = _listed(folder)
    cache.write(folder / _MANIFEST, {"listed": listed, "size": size})


def _is_sound(folder: Path) -> bool:
    """Return whether everything that was written still exists, also after a power failure."""
    manifest = cache.read(folder / _MANIFEST, _SMALL_FILE)
    with contextlib.suppress(OSError):
        return isinstance(manifest, dict) and manifest.get("listed") == _listed(folder)[0]
    return False


def _size(folder: Path) -> int:
    manifest = cache.read(folder / _MANIFEST, _SMALL_FILE)
    size = manifest.get("size") if isinstance(manifest, dict) else 0
    return size if isinstance(size, int) else 0


def _pointer(wheel: WheelFile) -> Path:
    """Return where to remember the digest of a wheel for which the index has none."""
    about = shown(wheel.url)
    if (path := local_path(wheel.url)) is not None:
        info = os.stat(path)  # noqa: PTH116 - a path as the index gives it
        about = f"{path} {info.st_size} {info.st_mtime_ns} {info.st_ino}"
    name = hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()
    return platformdirs.user_cache_path("verl-doctor") / "digests" / f"{name}.json"


def _learnt(wheel: WheelFile) -> str:
    digest = cache.read(_pointer(wheel), _SMALL_FILE)
    return digest if isinstance(digest, str) and len(digest) == 64 and digest.isalnum() else ""


def _learn(wheel: WheelFile, digest: str) -> None:
    if not wheel.sha256:
        cache.write(_pointer(wheel), digest)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_of_directory(folder: Path) -> str:
    """Return the digest of what was read, for a wheel that was never read whole."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if os.path.isfile(path):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
