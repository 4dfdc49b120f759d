"""Expands words like the shell, as far as the values are known.

None stands for what cannot be determined without running the script.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from dataclasses import replace

from verl_doctor.toolkit.sources.shell.arithmetic import assigned_in, evaluate
from verl_doctor.toolkit.sources.shell.braces import MOST_WORDS, braces
from verl_doctor.toolkit.sources.shell.scope import BLANKS, Scope
from verl_doctor.toolkit.sources.shell.state import (
    UNSET,
    Array,
    Either,
    Element,
    Reference,
    Unset,
    united,
)
from verl_doctor.toolkit.sources.shell.syntax import (
    Arithmetic,
    Parameter,
    Part,
    ShellWord,
    Substitution,
    Text,
)

_SLASH = re.compile(r"((?:[^/\\]|\\.)*)/(.*)", re.DOTALL)  # the first that is not escaped
_GLOB = re.compile(r"\*|\?|\[(?!(?:\*|\?|\[)\])")  # but not as `glob.escape` writes them
_NAMED = re.compile(r"[A-Za-z_]\w*|\d+", re.ASCII)
LONGEST = 1_000_000
"""Characters of a text that is still followed. Linux passes at most 131,072 in one word."""


def fields(word: ShellWord, scope: Scope) -> list[str | None]:
    """Return the words that one written word becomes after braces, expansion, splitting and quote removal."""
    found: list[str | None] = []
    for variant in braces(word, names_grow=not scope.is_zsh):
        found += _split(variant, scope)
        if len(found) > MOST_WORDS:
            return [None]
    return found


def text(word: ShellWord, scope: Scope) -> str | None:
    """Return the single text that a word becomes where the shell does not split, as in an assignment."""
    return _single([_joined(part, scope) for part in _tilde(word, scope, everywhere=True)])


def pattern_of(word: ShellWord, scope: Scope) -> str | None:
    """Return the pattern that a word becomes: its quoted characters stand for themselves."""
    pieces = [(text((part,), scope), part.quoted) for part in word]
    if any(piece is None for piece, _ in pieces):
        return None
    return "".join(glob.escape(piece or "") if quoted else piece or "" for piece, quoted in pieces)


def _joined(part: Part, scope: Scope) -> str | None:
    return _spaced(_values(part, scope), part, scope)


def _spaced(values: list[str | None] | None, part: Part, scope: Scope) -> str | None:
    """Return values as one text: `$*` has the first character of IFS between them, `$@` a space."""
    between = " "
    if len(values or ()) > 1 and isinstance(part, Parameter) and _is_every(part, "*"):
        if scope.separators is None:
            return None
        between = scope.separators[:1]
    return None if values is None or None in values else between.join(value or "" for value in values)


def undecided(word: ShellWord, scope: Scope) -> tuple[str, Either] | None:
    """Return the only undecided variable that a word expands plainly, and its texts.

    None when there is none or several.
    """
    found = {
        part.name: value
        for part in word
        if isinstance(part, Parameter)
        and not (part.operator or part.length or part.indirect or part.index is not None)
        if isinstance(value := scope.get(part.name), Either)
    }
    return next(iter(found.items())) if len(found) == 1 else None


def _split(word: ShellWord, scope: Scope) -> list[str | None]:
    if (
        len(word) == 1
        and not word[0].quoted
        and not scope.is_zsh
        and scope.separators == BLANKS
        and (choice := undecided(word, scope))
    ):
        return united([_at_blanks(text) for text in choice[1].texts])
    found: list[str | None] = []
    current: list[str | None] = []
    pattern = ""

    def end_word() -> None:
        nonlocal pattern
        becomes_files = _GLOB.search(pattern) and (_drops_patterns(scope) or scope.finds(pattern))
        found.append(None if becomes_files else _single(current))
        current.clear()
        pattern = ""

    for part in _tilde(word, scope, everywhere=False):
        if isinstance(part, Text):
            current.append(part.text)
            pattern += glob.escape(part.text) if part.quoted else part.text
            continue
        values = _values(part, scope)
        if values is None:
            current.append(None)
            continue
        if part.quoted:
            several = isinstance(part, Parameter) and _is_every(part, "@")
            if not several:
                values = [_spaced(values, part, scope)]
            pieces, opens, closes = values, False, False
        elif isinstance(values, _Fields) or (scope.is_zsh and isinstance(part, Parameter)):
            values = values if isinstance(values, _Fields) else [value for value in values if value != ""]
            pieces, opens, closes = values, False, False
        else:
            pieces, opens, closes = _pieces(values, scope.separators)
        if opens and current:
            end_word()
        for index, piece in enumerate(pieces):
            if index:
                end_word()
            current.append(piece)
            pattern += glob.escape(piece or "") if part.quoted else piece or ""
        if closes and current:
            end_word()
    if current:
        end_word()
    return found


def _drops_patterns(scope: Scope) -> bool:
    """Return whether a pattern without files may be no word, or an error."""
    return any(scope.state.option(name) is not False for name in ("nullglob", "failglob"))


def _pieces(values: list[str | None], separators: str | None) -> tuple[list[str | None], bool, bool]:
    """Split at blanks; also return whether there is a blank in front and at the end.

    Other separators yield an unknown text.
    """
    if separators is None or set(separators) != set(BLANKS):
        whole = separators is not None and not any(
            sign in (value or "") for value in values for sign in separators
        )
        return ([value for value in values if value] if whole else [None]), False, False
    pieces: list[str | None] = []
    for value in values:
        split = [] if value is None else _at_blanks(value)
        pieces += [value] if value is None or split == [value] else split  # an element keeps its place
    first, last = (values[0] or "", values[-1] or "") if values else ("", "")
    return pieces, first[:1] in {*BLANKS}, last[-1:] in {*BLANKS}


def _at_blanks(value: str) -> list[str]:
    """Split a text at what the shell takes for a blank: a carriage return is none."""
    return [piece for piece in re.split(r"[ \t\n]+", value) if piece]


def _single(pieces: list[str | None]) -> str | None:
    if len(pieces) > 1 and any(isinstance(piece, Element) and piece.conditional for piece in pieces):
        return None
    if len(pieces) == 1:
        return pieces[0]
    too_long = sum(len(piece or "") for piece in pieces) > LONGEST
    return None if too_long or None in pieces else "".join(piece or "" for piece in pieces)


def _is_every(part: Parameter, sign: str) -> bool:
    if part.length:
        return False
    return part.name == sign or (part.index is not None and part.index == (Text(sign),))


def _values(part: Part, scope: Scope) -> list[str | None] | None:
    """Return the values of a part: one, or an array's. None when not even their number is known."""
    if isinstance(part, Text):
        return [part.text]
    if isinstance(part, Arithmetic):
        number = evaluated(part.expression, scope)
        return [None if number is None else str(number)]
    if isinstance(part, Substitution):
        printed = scope.printed(part.script)
        return [None if printed is None else printed.rstrip("\n")]
    return _parameter(part, scope)


def evaluated(expression: ShellWord, scope: Scope) -> int | None:
    """Return the value of an arithmetic expression, None when undetermined; assign what it assigns."""
    written = text(expression, scope)
    literal = "".join(part.text for part in expression if isinstance(part, Text))

    def value_of(name: str) -> str | None:
        value = scope.single(name)
        return value if isinstance(value, str) else None

    changed: dict[str, int] = {}
    value = None if written is None else evaluate(written, value_of, changed, scope.refused)
    for name in assigned_in(literal if written is None else written):
        scope.set(name, None if value is None or name not in changed else str(changed[name]))
    return value


def _parameter(part: Parameter, scope: Scope) -> list[str | None] | None:
    if part.indirect:
        target = scope.state.variables.get(part.name)
        if isinstance(target, Reference):
            return [target.name] if not part.operator and part.index is None else None
        name = scope.single(part.name)
        if part.index is not None or not isinstance(name, str) or not _NAMED.fullmatch(name):
            return None
        part = replace(part, name=name, indirect=False)
    every = _is_every(replace(part, length=False), "@") or _is_every(replace(part, length=False), "*")
    if every or (scope.is_zsh and part.index is None and isinstance(scope.get(part.name), list)):
        value = scope.get(part.name)
        if isinstance(value, Either):
            return None
        if isinstance(value, list):
            values: list[str | None] = value
        elif isinstance(value, Unset):
            values = []
        else:
            values = [value] if value is not None or part.name in scope.state.variables else [None]
            if value is None:
                return None
        if part.length:
            return [str(len(values)) if _has_fixed_places(values) else None]
        if part.operator == ":":
            return _slice(values, part.argument, scope, arguments=part.name in ("@", "*"))
        if part.operator in ("", "+", ":+", "-", ":-"):
            kept = values
            if part.operator in ("-", ":-") and not values:
                kept = _default(part, scope)
            if part.operator in ("+", ":+"):
                kept = _default(part, scope) if values else []
            return kept
        return [_changed(value, part, scope) for value in values]
    value_or_unset = _element(part, scope) if part.index is not None else scope.single(part.name)
    if part.length:
        if isinstance(value_or_unset, Unset):
            return [None]
        return [None if value_or_unset is None else str(len(value_or_unset))]
    return _with_operator(part, value_or_unset, scope)


def _has_fixed_places(values: list[str | None]) -> bool:
    """Return whether each element has its place.

    An unknown word may become several elements, a conditional element none.

    An unknown word in quotes is one element of an array.
    """
    words = values.words if isinstance(values, Array) and len(values.words) == len(values) else ()
    single = [all(map(_stays_single, word.parts)) for word in words]
    return not any(
        (value is None and not (single and single[place]))
        or (isinstance(value, Element) and value.conditional)
        for place, value in enumerate(values)
    )


def _stays_single(part: Part) -> bool:
    """Return whether a part of a word neither splits it nor makes several of it."""
    if isinstance(part, Text):
        return part.quoted or not re.search(r"[*?\[{]", part.text)
    several = isinstance(part, Parameter) and (_is_every(part, "@") or part.indirect)
    return part.quoted and not several


class _Fields(list[str | None]):
    """Words that are already split."""


def _default(part: Parameter, scope: Scope) -> list[str | None]:
    several = any(isinstance(piece, Parameter) and _is_every(piece, "@") for piece in part.argument)
    if part.quoted and not several:
        return [text(part.argument, scope)]
    if part.quoted and not _is_every(part, "@"):
        return [None]
    found = fields(part.argument, scope)
    quoted = [piece.quoted for piece in part.argument]
    if any(quoted) and not all(quoted) and any(" " in (word or "") for word in found):
        return [None]  # some blanks split, others do not
    return _Fields(found) if all(quoted) else found


def _element(part: Parameter, scope: Scope) -> str | Unset | None:
    value = scope.get(part.name)
    index = evaluated(part.index or (), scope)
    if isinstance(value, Either):
        return None
    if isinstance(value, list):
        if index is None or not _has_fixed_places(value):
            return None
        if scope.is_zsh:
            index = index - 1 if index > 0 else index or len(value)
        return value[index] if -len(value) <= index < len(value) else UNSET
    return value if index == 0 and not scope.is_zsh else None


def _slice(
    values: list[str | None], argument: ShellWord, scope: Scope, *, arguments: bool
) -> list[str | None] | None:
    """Evaluate `${name[@]:start:count}`, None if not even the number of its values is known.

    The script's arguments count from one.
    """
    written = text(argument, scope)
    match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", written or "")
    if not match or not _has_fixed_places(values):
        return None
    start = int(match[1])
    if arguments:
        if start == 0:
            return None
        start -= 1
    return values[start:] if match[2] is None else values[start : start + int(match[2])]


def _with_operator(part: Parameter, value: str | Unset | None, scope: Scope) -> list[str | None]:
    """Apply `:-`, `:=`, `:+` and the like."""
    operator = part.operator
    if not operator:
        if isinstance(value, Unset) and part.index is None and not part.name.isdigit():
            scope.unset.append(part.name)
            if scope.is_empty(part.name):
                return [""]
        if isinstance(value, Unset) and part.name.isdigit() and scope.get("#") is not None:
            return [None if scope.state.option("nounset") is not False else ""]
        return [value if isinstance(value, str) else None]
    kind = operator.lstrip(":")
    if kind in ("-", "=", "?", "+"):
        if value is None:
            return [None]
        missing = isinstance(value, Unset) or (operator.startswith(":") and not value)
        if kind == "+":
            return ([] if not part.quoted else [""]) if missing else _default(part, scope)
        if not missing:
            return [value if isinstance(value, str) else None]
        if kind == "?":
            if part.index is None and not part.name.isdigit():
                message = text(part.argument, scope) or "parameter null or not set"
                scope.needed.append((part.name, message))
            return [None]
        default = _default(part, scope)
        if kind == "=":
            assigned = text(part.argument, scope)
            scope.set(part.name, assigned)
            return [assigned]
        return default
    return [_changed(value if isinstance(value, str) else None, part, scope)]


def _changed(value: str | None, part: Parameter, scope: Scope) -> str | None:
    """Apply `#`, `%`, `/`, `^` and `,`: remove or replace a part of a text."""
    if value is None:
        return None
    operator = part.operator
    if operator[0] in "^," and part.argument:
        return None
    if operator == "^^":
        return value.upper()
    if operator == ",,":
        return value.lower()
    if operator in ("^", ","):
        return (value[:1].upper() if operator == "^" else value[:1].lower()) + value[1:]
    if operator in ("/", "//"):
        return _replaced(value, part, scope)
    # Within double quotes, the parser does not keep which characters were quoted.
    pattern = text(part.argument, scope) if part.quoted else pattern_of(part.argument, scope)
    if pattern is None:
        return None
    if operator == ":":
        match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", pattern)
        if not match:
            return None
        return value[int(match[1]) :][: int(match[2]) if match[2] is not None else None]
    if operator in ("#", "##", "%", "%%"):
        return _trimmed(value, operator, pattern)
    return None


def _replaced(value: str, part: Parameter, scope: Scope) -> str | None:
    """Apply `${name/old/new}`. A quoted slash belongs to the text that is replaced."""
    old: list[Part] = []
    new: list[Part] = []
    for place, piece in enumerate(part.argument):
        slash = _SLASH.match(piece.text) if isinstance(piece, Text) and piece.quoted == part.quoted else None
        if slash:
            old.append(Text(slash[1], part.quoted))
            new = [Text(slash[2], part.quoted), *part.argument[place + 1 :]]
            break
        old.append(piece)
    pattern, replacement = text(tuple(old), scope), text(tuple(new), scope)
    if pattern is not None and part.quoted:
        pattern = pattern.replace("\\/", "/")
    if pattern is None or replacement is None or re.search(r"[*?\[(\\]", pattern) or "&" in replacement:
        return None
    count = value.count(pattern) if pattern else 0
    if len(value) + count * len(replacement) > LONGEST:
        return None
    return value.replace(pattern, replacement, 1 if part.operator == "/" else -1) if pattern else value


def _trimmed(value: str, operator: str, pattern: str) -> str | None:
    if "[" in pattern or "\\" in pattern:
        return None
    cuts = range(len(value) + 1)
    if operator in ("##", "%"):
        cuts = range(len(value), -1, -1)
    for cut in cuts:
        part, rest = (value[:cut], value[cut:]) if operator[0] == "#" else (value[cut:], value[:cut])
        if fnmatch.fnmatchcase(part, pattern):
            return rest
    return value


def _tilde(word: ShellWord, scope: Scope, *, everywhere: bool) -> ShellWord:
    """Expand `~/` and `~user/` at the start, and after the `=` and colons of an assignment.

    `everywhere`: the word is the text that is assigned.
    """
    if not word or not isinstance(word[0], Text) or word[0].quoted or "~" not in word[0].text:
        return word
    home = scope.get("HOME")
    if not isinstance(home, str):
        return word
    start = r"(^|:)" if everywhere else r"(^|^[A-Za-z_]\w*=)"
    end = r"(?=[/:]|$)" if everywhere else r"(?=/|$)"
    first = re.sub(
        f"{start}(~[a-z_][\\w-]*|~){end}",
        lambda match: match[1] + (home if match[2] == "~" else os.path.expanduser(match[2])),  # noqa: PTH111
        word[0].text,
    )
    return (Text(first), *word[1:])
