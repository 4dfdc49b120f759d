"""Bytecode caches: the target's own interpreter writes missing ones, and undo removes them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import signal
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import CompileBytecode
from verl_doctor.toolkit.changes import journal, safe_write
from verl_doctor.toolkit.changes.records import BytecodeRecord, Entry, Planned
from verl_doctor.toolkit.system.errors import Refused, os_error_text

_LIMIT = 1800.0
_FOLDER = "__pycache__"
_LARGEST_MANIFEST = 256 * 1024 * 1024
_HALF_WRITTEN = re.compile(r".+\.pyc\.[0-9]+")
_ABSENT, _WRITTEN = "absent.json.gz", "written.json.gz"
_PRINT_TAG = "import sys; print(sys.implementation.cache_tag)"
# Reads the sources to compile from a manifest and distributes them over one process per core. Standard input
# is a pipe that closes when the doctor ends, even if it is killed: no cache is written after that. Sources
# that do not compile are ignored; the first disk error is reported.
_COMPILE = """
import gzip, json, os, py_compile, select, sys
with gzip.open(sys.argv[1], "rt", encoding="ascii") as stream:
    manifest = json.load(stream)
sources = [os.path.join(root, name) for root in manifest for name in manifest[root]]
cores = max(1, min(len(os.sched_getaffinity(0)), len(sources) // 8, 32))
workers = []
for worker in range(cores):
    process = os.fork()
    if process:
        workers.append(process)
        continue
    code = 0
    for source in sources[worker::cores]:
        if select.select([0], [], [], 0)[0]:
            os._exit(2)
        try:
            mode = py_compile.PycInvalidationMode.TIMESTAMP
            py_compile.compile(source, doraise=True, invalidation_mode=mode)
        except OSError as error:
            if not code:
                os.write(2, ("%s: %s\\n" % (source, error.strerror)).encode("utf-8", "backslashreplace"))
            code = 1
        except Exception:
            pass
    os._exit(code)
failed = [os.waitpid(process, 0)[1] for process in workers]
sys.exit(max(failed) != 0)
"""

# For each root, its sources by relative path. In the manifest of absent caches: whether the cache folder
# existed. In that of written ones: the cache's size, and its time in nanoseconds.
Manifest = dict[str, dict[str, list[int]]]


def plan(change: CompileBytecode) -> Planned | None:
    """Return the record of a change, or None if no cache is missing. Raises Refused."""
    for root in change.roots:
        if not os.path.isdir(root):
            raise Refused(f"{root} is not a folder: no bytecode can be written below it")
    roots = tuple(os.path.realpath(root) for root in change.roots)
    python = os.path.abspath(change.python)
    record = BytecodeRecord("compile_bytecode", python, roots, _cache_tag(python))
    return Planned(record, {}) if any(_sources_without_cache(record)) else None


def write(entry: Entry, index: int, record: BytecodeRecord, lock: int) -> None:
    """Write the missing caches, after recording which ones are missing.

    The child processes inherit `lock`, so nothing is undone while they run, even if this process is killed.
    Raises Refused if no cache could be written or time ran out, and OSError.
    """
    absent: Manifest = {root: {} for root in record.roots}
    for root, source in _sources_without_cache(record):
        absent[root][os.path.relpath(source, root)] = [int(os.path.exists(Path(source).with_name(_FOLDER)))]
    journal.note(entry, index, _ABSENT, _packed(absent))
    complaint = _run(record, entry.at(index, _ABSENT), lock)
    written: Manifest = {root: {} for root in record.roots}
    for root, name, cache in _caches(record, absent):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            written[root][name] = _identity(cache)
    if complaint and not any(written.values()):
        raise Refused(f"no bytecode could be written: {complaint}")
    journal.note(entry, index, _WRITTEN, _packed(written))


def remove(entry: Entry, index: int, record: BytecodeRecord) -> None:
    """Remove the caches that are unchanged since. Raises Refused and OSError.

    If writing was interrupted, all caches that were missing before are removed, including half-written ones.
    """
    absent, written = _manifests(entry, index, record)
    folders: dict[Path, bool] = {}
    for root, name, cache in _caches(record, absent):
        folders[cache.parent] = bool(absent[root][name][0])
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if written is None or written[root].get(name) == _identity(cache):
                cache.unlink()
    for folder, was_there in folders.items():
        if written is None:
            _remove_half_written(folder)
        if not was_there:
            safe_write.remove_if_empty(folder)


@dataclass(frozen=True)
class Remaining:
    """How many caches of a change remain.

    `existing` counts those in place, `meant` those that were missing before, `written` those that were
    written: None if writing was interrupted before they were counted.
    """

    existing: int
    meant: int
    written: int | None


def remaining(entry: Entry, index: int, record: BytecodeRecord) -> Remaining:
    """Count the caches that are in place. Raises Refused and OSError."""
    absent, written = _manifests(entry, index, record)
    existing = meant = 0
    for root, name, cache in _caches(record, absent):
        meant += 1
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            seen = _identity(cache)
            existing += written is None or written[root].get(name) == seen
    total = None if written is None else sum(map(len, written.values()))
    return Remaining(existing, meant, total)


def _cache_tag(python: str) -> str:
    try:
        result = subprocess.run(
            [python, "-I", "-S", "-c", _PRINT_TAG], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError as error:
        raise Refused(f"{os_error_text(error)}: this interpreter cannot be run") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{python} did not respond within 60 s") from None
    tag = result.stdout.strip()
    if result.returncode or not tag.replace("-", "").isalnum():
        raise Refused(f"{python} did not report which bytecode it reads: {result.stderr.strip()[-200:]}")
    return tag


def _sources_without_cache(record: BytecodeRecord) -> Iterator[tuple[str, str]]:
    for root in record.roots:
        for folder, folders, names in os.walk(root):
            sources = [name for name in names if name.endswith(".py")]
            cached: set[str] = set()
            if _FOLDER in folders:
                folders.remove(_FOLDER)
                if sources:
                    cached.update(cache.name for cache in Path(folder, _FOLDER).iterdir())
            for name in sources:
                if f"{name[:-3]}.{record.tag}.pyc" not in cached:
                    yield root, f"{folder}/{name}"


def _caches(record: BytecodeRecord, sources: Manifest) -> Iterator[tuple[str, str, Path]]:
    for root in record.roots:
        for name in sources[root]:
            source = Path(root, name)
            yield root, name, source.parent / _FOLDER / f"{source.stem}.{record.tag}.pyc"


def _identity(cache: Path) -> list[int]:
    seen = cache.stat()
    return [seen.st_size, seen.st_mtime_ns]


def _run(record: BytecodeRecord, manifest: Path, lock: int) -> str:
    """Run the compiling child to its end and return its error message, if any."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(
        [record.python, "-I", "-S", "-W", "ignore", "-c", _COMPILE, str(manifest)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(lock,),
        start_new_session=True,
    ) as child:
        try:
            child.wait(_LIMIT)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Refused(f"writing bytecode took longer than {_LIMIT:.0f} s and was stopped") from None
            raise
        complaint = child.stderr.read().decode("utf-8", "replace").strip() if child.stderr else ""
    return (complaint.splitlines() or ["the interpreter failed"])[0] if child.returncode else ""


def _remove_half_written(folder: Path) -> None:
    """Remove temporary caches that killed processes leave: Python first writes caches under another name."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for file in folder.iterdir():
            if _HALF_WRITTEN.fullmatch(file.name):
                file.unlink(missing_ok=True)


def _packed(manifest: Manifest) -> bytes:
    return gzip.compress(json.dumps(manifest).encode("ascii"), compresslevel=5, mtime=0)


def _manifests(entry: Entry, index: int, record: BytecodeRecord) -> tuple[Manifest, Manifest | None]:
    """Return what was absent before and what was written, None if writing did not finish."""
    nothing: Manifest = {root: {} for root in record.roots}
    return _manifest(entry, index, _ABSENT, record) or nothing, _manifest(entry, index, _WRITTEN, record)


def _manifest(entry: Entry, index: int, what: str, record: BytecodeRecord) -> Manifest | None:
    packed = journal.noted(entry, index, what)
    if packed is None:
        return None
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            manifest: Manifest = json.loads(stream.read(_LARGEST_MANIFEST))
        if set(manifest) != set(record.roots):
            raise ValueError("it names other folders")  # noqa: TRY301
        for sources in manifest.values():
            for name, numbers in sources.items():
                if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
                    raise ValueError(f"{name!r:.80} is outside its folder")  # noqa: TRY301
                if not numbers or not all(isinstance(number, int) for number in numbers):
                    raise ValueError(f"{name!r:.80} is not described by numbers")  # noqa: TRY301
    except (OSError, EOFError, zlib.error, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(
            f"the journal's {entry.at(index, what)} is invalid ({error}); remove the caches that it names "
            f"by hand, and move the transaction's folder elsewhere"
        ) from None
    return manifest
