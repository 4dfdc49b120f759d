"""The shell file: any POSIX shell can source it, even twice and under `set -eu`, and it can be read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.repair.envfile import SOURCED, Entry, Reason

_WORD = r"'(?:[^']|'\"'\"')*'"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENTRY = re.compile(
    r"\n(?P<reasons>(?:# [A-Z]{2,5}[0-9]{3} [^\n:]+: [^\n]*\n)+)"
    r"(?P<node_only># On this node only[^\n]*\n)?"
    r"(?:# It was: (?P<instead_of>[^\n]*)\n)?"
    rf"(?:unset (?P<unset>{_NAME})"
    rf"|export (?P<set>{_NAME})=(?P<value>{_WORD})"
    rf'|case "\$\{{(?P<list>{_NAME}):-\}}:" in (?P<front>{_WORD}):\*\) ;; \*\)'
    r'[^\n]*? export (?P=list)=(?P=front)"[^"\n]*" ;; esac'
    r")\n"
)
_REASON = re.compile(r"# (?P<code>[A-Z]{2,5}[0-9]{3}) (?P<fix>[^\n:]+): (?P<why>[^\n]*)\n")


def written(entries: Iterable[Entry], sign: str) -> str:
    """Return the file's content after its header. `sign` is the value that it assigns to `SOURCED`."""
    return f"export {SOURCED}={quoted(sign)}\n" + "".join(map(_block, entries))


def read(content: str) -> tuple[str, tuple[Entry, ...]] | None:
    """Return the sign and the entries of a text from `written`; None for any other text."""
    line = re.match(rf"export {SOURCED}=({_WORD})\n", content)
    if line is None:
        return None
    entries, position = [], line.end()
    while position < len(content):
        found = _ENTRY.match(content, position)
        if found is None:
            return None
        entries.append(_entry(found))
        position = found.end()
    return _unquoted(line[1]), tuple(entries)


def quoted(value: str) -> str:
    """Quote this text as one word for any POSIX shell."""
    return "'" + value.replace("'", "'\"'\"'") + "'"


def _unquoted(word: str) -> str:
    return word[1:-1].replace("'\"'\"'", "'")


def statement(name: str, value: str | None, *, prepend: bool) -> str:
    """Return the shell line that sets a variable, unsets it, or prepends `value` to a list, once.

    Only once, because every subshell sources the file again.
    """
    if value is None:
        return f"unset {name}"
    word = quoted(value)
    if not prepend:
        return f"export {name}={word}"
    return f'case "${{{name}:-}}:" in {word}:*) ;; *) export {name}={word}"${{{name}:+:${name}}}" ;; esac'


def _block(entry: Entry) -> str:
    lines = (*_comments(entry), statement(entry.name, entry.value, prepend=entry.prepend))
    return "\n" + "".join(f"{line}\n" for line in lines)


def _comments(entry: Entry) -> Iterator[str]:
    yield from (f"# {reason}" for reason in entry.reasons)
    if entry.node_only:
        yield "# On this node only: another may need another value, so Ray does not hand it on."
    if entry.instead_of is not None:
        yield f"# It was: {json.dumps(entry.instead_of)}"


def _entry(found: re.Match[str]) -> Entry:
    word = found["value"] or found["front"]
    instead_of = found["instead_of"]
    return Entry(
        name=found["unset"] or found["set"] or found["list"],
        value=None if word is None else _unquoted(word),
        reasons=tuple(Reason(**match.groupdict()) for match in _REASON.finditer(found["reasons"])),
        prepend=found["list"] is not None,
        node_only=found["node_only"] is not None,
        instead_of=None if instead_of is None else json.loads(instead_of),
    )
