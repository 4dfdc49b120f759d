"""What a program that is called before the job may create, remove or install, by its name and words."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.job_program import base_names
from verl_doctor.toolkit.collectors.launch.wrappers.programs import PythonProgram, ShellProgram
from verl_doctor.toolkit.collectors.launch.wrappers.unwrap import Unwrapped
from verl_doctor.toolkit.sources.shell.found import Call
from verl_doctor.toolkit.sources.shell.walk import Walk
from verl_doctor.toolkit.system.secret import secrets_in, without_secrets

# Programs that only read, and those that may create whatever an archive or a file of rules specifies.
_LOOKS = frozenset(
    {
        "ls",
        "test",
        "[",
        "which",
        "type",
        "grep",
        "du",
        "df",
        "head",
        "tail",
        "wc",
        "stat",
        "file",
        "find",
        "sleep",
        "pip",
        "pip3",
        "date",
        "hostname",
        "kill",
        "pkill",
        "rm",
        "rmdir",
        "mkdir",
        "chmod",
        "chown",
        "ray",
        "nvidia-smi",
        "printenv",
        "md5sum",
        "free",
        "ulimit",
        "cat",
        "less",
        "more",
        "basename",
        "dirname",
        "realpath",
        "readlink",
        "cut",
        "tr",
        "sha256sum",
        "seq",
        "expr",
    }
)
_COPIES = frozenset({"cp", "mv", "ln", "install", "rsync", "scp"})
_UNPACKS = frozenset({"tar", "unzip", "7z", "make", "dvc", "git", "git-lfs", "just"})
PYTHON = re.compile(r"python[\d.]*")
_INSTALLERS = frozenset({"pip", "pip3", "uv", "conda", "mamba", "micromamba", "poetry", "pixi", "pdm"})
_INSTALLS = frozenset({"install", "sync", "add", "update", "upgrade", "create"})
WRITES = re.compile(
    r"save|write|download|dump|copy|to_(?:parquet|json|csv)|makedirs|mkdir|open\(|subprocess|system\("
    r"|sink_|extract|unpack|rename|move\(|link\(|run_path|exec\("
)
# Programs that remove, move or replace files, those that do so only with an option, and what Python calls for
# it.
_REMOVES = frozenset(
    {
        "rm",
        "rmdir",
        "unlink",
        "trash",
        "trash-put",
        "shred",
        "mv",
        "rsync",
        "ln",
        "cp",
        "install",
        "rename",
        "truncate",
        "sed",
        "find",
        "fd",
    }
)
_SEARCHES, _SEARCH_RUNS = frozenset({"find", "fd"}), ("-delete", "-exec", "-ok", "-x", "-X")
_REMOVING = re.compile(r"rmtree|remove|unlink|rmdir|replace")
_OPTION = re.compile(r"-|\w+=")  # `--to=PATH`, and dd's `of=PATH`
ANYWHERE = "/"
_SOURCES = (".py", ".yaml", ".yml", ".json", ".jinja", ".jinja2")
_LONGEST_SOURCE = 100_000


def may_make(call: Call, unwrapped: Unwrapped, folder: str, home: str, *, is_read: bool) -> Iterator[str]:
    """Yield what a program called before the job may create: paths in its arguments, else `ANYWHERE`.

    It starts in `folder`. `is_read`: it is a shell whose script was followed.
    """
    yield from (os.path.normpath(Path(folder, name)) for name in call.written)
    names = base_names(unwrapped.names)
    program = unwrapped.program
    words = [word.text for word in call.argv[1:] if word.text]
    if names & _SEARCHES and any(word.startswith(_SEARCH_RUNS) for word in words):
        yield ANYWHERE
    if names & _LOOKS or (isinstance(program, PythonProgram) and program.module in _LOOKS):
        return
    values = [word.partition("=")[2] if _OPTION.match(word) else word for word in words]
    secrets = set(secrets_in(shlex.join(word.text or "" for word in call.argv)))  # `curl -u joe:secret`
    paths = [
        re.sub(r"^~(?=/|$)", home, value)
        for value in values
        if value
        and not value.startswith("-")
        and without_secrets(value) == value
        and not any(secret in value for secret in secrets)
    ]
    known = [
        path for path in paths if "/" in path and "://" not in path and not path.endswith((".py", ".sh"))
    ]
    runs = isinstance(program, PythonProgram) or (isinstance(program, ShellProgram) and not is_read)
    if names & _UNPACKS or (runs and not known) or (program is None and _runs_inline_python(names, words)):
        yield ANYWHERE
    if names & _COPIES and len(paths) > 1 and not any(word.startswith(("-t", "--target")) for word in words):
        copies = [f"{paths[-1]}/{Path(path).name}" for path in paths[:-1]]
        paths = [paths[-1], *copies]
    is_shell = isinstance(program, ShellProgram)
    yield from (os.path.normpath(Path(folder, path)) for path in (known if runs or is_shell else paths))


def folders_made(call: Call, unwrapped: Unwrapped, folder: str, home: str) -> Iterator[str]:
    """Yield the folders that `mkdir` makes. An unknown path yields `ANYWHERE`."""
    if "mkdir" in base_names(unwrapped.names):
        words = [word.text for word in unwrapped.rest[1:] or call.argv[1:]]
        for word in words:
            if word is None:
                yield ANYWHERE
            elif not word.startswith("-"):
                yield os.path.normpath(Path(folder, re.sub(r"^~(?=/|$)", home, word)))


def may_remove(call: Call, unwrapped: Unwrapped) -> Iterator[str]:
    """Yield what a program called before the job may remove, move or replace.

    An unknown path yields `ANYWHERE`.
    """
    names, words = base_names(unwrapped.names), [word.text for word in call.argv[1:]]
    if unwrapped.program is None and any(map(PYTHON.fullmatch, names)):
        if any(word is None or _REMOVING.search(word) for word in words):
            yield ANYWHERE
        return
    changing = names & _REMOVES
    runs = any(word is None or word.startswith(_SEARCH_RUNS) for word in words)
    if not changing or (changing <= _SEARCHES and not runs):
        return
    if None in words or names & {"xargs", "parallel"}:
        yield ANYWHERE
    for word in words:
        if word and not word.startswith("-"):
            known = re.split(r"[*?[]", word, maxsplit=1)[0] if glob.has_magic(word) else f"{word}/"
            path = os.path.normpath(
                Path(call.folder, known.rpartition("/")[0] or ("/" if known[:1] == "/" else "."))
            )
            yield path if path.startswith("/") else ANYWHERE


def written_before(walk: Walk, call: Call) -> dict[str, str | None]:
    """Return the sources and configuration files that a script has written before a call.

    Texts that may hold secrets are left out.
    """
    found: dict[str, str | None] = {}
    for path in walk.files.outputs:
        if path.endswith(_SOURCES) and path not in found and walk.files.has_written(path, before=call):
            text = walk.files.text_at(path, before=call)
            known = text is not None and len(text.text) < _LONGEST_SOURCE and not any(secrets_in(text.text))
            found[path] = text.text if text is not None and known else None
    return found


def outputs_before(walk: Walk, call: Call) -> Iterator[str]:
    """Yield the files that a script's output goes to before a call."""
    yield from _made_before(walk.files.outputs, walk, call)


def awaited_before(walk: Walk, call: Call) -> Iterator[str]:
    """Yield the files that a script has waited for before a call."""
    yield from _made_before(walk.files.awaited, walk, call)


def _made_before(paths: Iterable[str], walk: Walk, call: Call) -> Iterator[str]:
    yield from (path for path in dict.fromkeys(paths) if walk.files.has_made(path, before=call))


def installs(call: Call) -> bool:
    """Return whether a call may install packages: `pip install`, `python -m pip install`, `uv sync`."""
    words = [(word.text or "").rpartition("/")[2] for word in call.argv]
    installer = next((place for place, word in enumerate(words) if word in _INSTALLERS), None)
    return installer is not None and not _INSTALLS.isdisjoint(words[installer:])


def _runs_inline_python(names: Collection[str], words: Sequence[str]) -> bool:
    """Return whether Python runs code from its input, or code in its arguments that may write files."""
    if not any(PYTHON.fullmatch(name) for name in names):
        return False
    is_input = not words or words[0] == "-"
    return is_input or ("-c" in words and any(WRITES.search(word) for word in words))
