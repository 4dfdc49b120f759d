"""Masks secrets in all that leaves the doctor: results in all forms, files it writes, and both streams.

`system.secret` decides what is a secret. The value of a secret variable in the user's environment is masked
wherever it occurs, even without its name.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import IO, Any, TextIO, TypeVar

from verl_doctor.toolkit.console.streams import give_up_stderr
from verl_doctor.toolkit.system.secret import MASK, is_recognisable, is_secret, secrets_in, without_secrets
from verl_doctor.toolkit.system.token_shapes import without_keys

T = TypeVar("T")

# Fields of our documents that only look like a secret: the key of a setting, a rule that passes.
_OUR_FIELDS = frozenset(
    {
        "key",
        "keys",
        "pass",
        "passes",
        "pin",
        "sig",
        "signature",
        "token",
        "auth",
        "api",
        "key_from",
        "nearest_key",
    }
)
_LONGEST_COMMAND = 2000  # words


@dataclass(frozen=True)
class Mask:
    """Masks texts and documents. `known` finds secrets that are known by their value."""

    known: re.Pattern[str] | None = None

    def text(self, text: str) -> str:
        """Return the text with `***` in place of each secret. The number of lines stays the same."""
        if self.known is not None:
            text = self.known.sub(MASK, text)
        return _without_secrets(text) if len(text) < _SHORT else without_secrets(text)

    def document(self, value: T) -> T:
        """Return the value with secrets masked in each of its texts: JSON types, tuples and dataclasses."""
        return self._masked(value)  # type: ignore[no-any-return]

    def and_those_in(self, lines: Iterable[str]) -> Mask:
        """Return a mask that also covers the secrets that these lines name."""
        values = {value for line in lines for value in secrets_in(line)}
        known = "" if self.known is None else self.known.pattern
        return Mask(_any_of(values, known))

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(map(self._masked, self._command(_without_keys(value))))
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        masked = {self._masked(name): self._named(name, inner) for name, inner in value.items()}
        name, inner = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(inner, str) and is_secret(name, inner):
            masked["value"] = MASK
        return masked

    def _named(self, name: Any, value: Any) -> Any:
        if (
            isinstance(name, str)
            and isinstance(value, str)
            and name not in _OUR_FIELDS
            and is_secret(name, value)
        ):
            return MASK
        return self._masked(value)

    def _dataclass(self, value: Any) -> Any:
        changed = {}
        for field in fields(value):
            before = getattr(value, field.name)
            after = self._masked(before)
            if after is not before and after != before:
                changed[field.name] = after
        return replace(value, **changed) if changed else value

    @staticmethod
    def _command(words: list[Any] | tuple[Any, ...]) -> Iterable[Any]:
        """Return the words of a command line, masking those that only the words before them make secret."""
        if not 1 < len(words) <= _LONGEST_COMMAND or not all(isinstance(word, str) for word in words):
            return words
        if not any(word.startswith("-") or word == "login" for word in words):
            return words
        secrets = set(secrets_in(" ".join(words)))
        return [word if word not in secrets else MASK for word in _parted(words, secrets)]


def _without_keys(lines: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    """Return lines of text without those of a private key, which only its first and last line name."""
    if not any(isinstance(line, str) and "PRIVATE KEY" in line for line in lines):
        return lines
    texts = [line for line in lines if isinstance(line, str)]
    hidden = iter(without_keys("\n".join(texts), MASK).split("\n"))
    shown = ["\n".join(next(hidden) for _ in range(text.count("\n") + 1)) for text in texts]
    left = iter(shown)
    return [next(left) if isinstance(line, str) else line for line in lines]


def _parted(words: Iterable[str], secrets: Iterable[str]) -> Iterator[str]:
    """Yield the words; those that end in a secret, such as -pSECRET, lose it."""
    for word in words:
        ends = [
            secret for secret in secrets if word != secret and word.endswith(secret) and word.startswith("-")
        ]
        yield word.removesuffix(max(ends, key=len)) + MASK if ends else word


_SHORT = 400  # characters: longer texts are few, and not cached


@lru_cache(maxsize=8192)
def _without_secrets(text: str) -> str:
    return without_secrets(text)


def mask_of(environ: Mapping[str, str]) -> Mask:
    """Return the mask for a process with these variables."""
    secrets = (value for name, value in environ.items() if is_secret(name, value) and is_recognisable(value))
    return Mask(_any_of(notation for value in secrets for notation in _notations(value)))


def _notations(value: str) -> Iterator[str]:
    """Yield a secret as shells, JSON and HTML write it: quoted in a command, it may have other signs."""
    yield value
    yield value.replace("'", "'\"'\"'")
    yield value.replace("'", "'\\''")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield html.escape(value)


def masked(value: T) -> T:
    """Return a value safe to leave the doctor."""
    return mask_of(os.environ).document(value)


def masked_text(text: str) -> str:
    """Return a text safe to leave the doctor."""
    return mask_of(os.environ).text(text)


def _any_of(values: Iterable[str], more: str = "") -> re.Pattern[str] | None:
    listed = [
        re.escape(value) for value in sorted(set(values), key=len, reverse=True) if is_recognisable(value)
    ]
    pattern = "|".join(filter(None, (*listed, more)))
    return re.compile(pattern) if pattern else None


class MaskedStream(io.TextIOBase):
    """A stream for people that masks each line before writing it.

    Everything else is passed to the stream below.

    `give_up` is called when it can no longer be written; without it the error is raised.
    """

    def __init__(self, stream: TextIO, give_up: Callable[[], None] | None = None) -> None:
        self.stream = stream
        self._give_up = give_up
        self._mask = mask_of(os.environ)
        self._begun = ""

    def write(self, text: str) -> int:
        """Write the complete lines."""
        whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            with self._tolerant():
                self.stream.write(self._mask.text(whole) + newline)
                if self.stream.isatty():
                    self.stream.flush()
        return len(text)

    def flush(self) -> None:
        """Write a partial line, too.

        Nothing where the stream below was closed first, as when a process ends.
        """
        begun, self._begun = self._begun, ""
        if self.stream.closed:
            return
        with self._tolerant():
            if begun:
                self.stream.write(self._mask.text(begun))
            self.stream.flush()

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if self._give_up is None:
                raise
            self._give_up()

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the stream below is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream below."""
        return self.stream.fileno()

    @property
    def buffer(self) -> IO[bytes]:
        """Where bytes are written unchanged."""
        return self.stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream below."""
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """How characters that its encoding lacks are handled."""
        return self.stream.errors


@contextlib.contextmanager
def masked_streams() -> Iterator[None]:
    """Mask what is written to sys.stdout and sys.stderr in this block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = MaskedStream(before[0]), MaskedStream(before[1], give_up_stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def unmasked(file: TextIO) -> TextIO:
    """Return the stream below, for already masked documents: a line of JSON is no text for people."""
    return file.stream if isinstance(file, MaskedStream) else file
