"""The shell's builtins that change a script's state: variables, arguments, the folder, another file's text."""

from __future__ import annotations

import os
import re
from pathlib import Path

from verl_doctor.toolkit.sources.shell.arithmetic import assigned_in
from verl_doctor.toolkit.sources.shell.expand import UNSET, Unset, Value, evaluated, fields
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Simple, Substitution, Text, Written, below
from verl_doctor.toolkit.sources.shell.walk import Argument, Builtin, Given, Walk, passed

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CD_OPTIONS = frozenset({"-L", "-P", "-e", "-@", "--"})
_SET_BY_READING = ("REPLY", "MAPFILE", "OPTARG", "OPTIND")


def _export(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    options = [word.raw for word in node.words[1:] if isinstance(word, Written) and word.raw.startswith("-")]
    name = argv[0].text
    letters = "".join(option.lstrip("-") for option in options)
    exports = name == "export" or "x" in letters
    if name == "export" and "n" in letters:
        exports = False
    is_local = name in ("local", "declare", "typeset") and bool(walk.locals) and "g" not in letters
    for word in node.words[1:]:
        if isinstance(word, Assignment):
            assigned = walk.value_of(word)
            if is_local:
                walk.localise(word.name)
            _declare(walk, word.name, letters, assigned)
            walk.store(word.name, None if "n" in letters else assigned, word.line, exports=exports)
            if name == "readonly" or "r" in letters:
                walk.readonly.add(word.name)
            continue
        if word.raw.startswith("-"):
            continue
        for value in fields(word.parts, walk.scope):
            if value is None:
                walk.not_followed(word.line, f"`{name}` of an unknown name")
                walk.forget(word.line)
            elif not _NAME.fullmatch(value.partition("=")[0]):
                walk.missing(word.line, f"{name}: `{value}': not a valid identifier")
            elif "=" in value:
                key, _, text_ = value.partition("=")
                if is_local:
                    walk.localise(key)
                walk.store(key, text_, word.line, exports=exports)
            else:
                if is_local:
                    walk.localise(value)
                _declare(walk, value, letters, None)
                if exports:
                    walk.export(value, walk.scope.get(value), word.line)


def _declare(walk: Walk, name: str, letters: str, value: Value) -> None:
    """Note the attributes of a variable. What a reference (`-n`) leads to may be assigned by another name."""
    attributes = "".join(letter for letter in letters if letter in "ilu")
    if attributes:
        walk.attributes[name] = attributes
    if "n" in letters and isinstance(value, str) and _NAME.fullmatch(value):
        walk.scope.variables[value] = None


def _unset(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for argument in argv[1:]:
        if argument.text is None:
            walk.not_followed(argument.line, "`unset` of an unknown name")
        elif argument.text == "-f":
            for name in argv[1:]:
                walk.functions.pop(name.text or "", None)
            return
        elif "[" in argument.text:
            walk.scope.variables[argument.text.partition("[")[0]] = None
        elif not argument.text.startswith("-"):
            walk.scope.variables[argument.text] = UNSET
            walk.exported.discard(argument.text)
            walk.given.append(
                Given(
                    argument.text,
                    None,
                    walk.path,
                    argument.line,
                    removed=True,
                    conditional=walk.conditions > 0,
                )
            )


def _shift(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    count = argv[1].text if len(argv) > 1 else "1"
    if count is None or not count.isdigit():
        walk.scope.arguments = [None] * len(walk.scope.arguments)
    elif int(count) <= len(walk.scope.arguments):
        walk.scope.arguments = walk.scope.arguments[int(count) :]


_NAMED_OPTIONS = {"errexit": "e", "nounset": "u", "allexport": "a"}


def _set(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for place, argument in enumerate(argv[1:], 1):
        if argument.text == "--":
            walk.scope.arguments = passed(argv[place + 1 :])
            return
        text = argument.text or ""
        sign, letters = text[:1], text[1:]
        if sign not in ("-", "+") or not letters.isalpha():
            continue
        if letters.endswith("o"):
            following = argv[place + 1].text if place + 1 < len(argv) else ""
            letters = letters[:-1] + _NAMED_OPTIONS.get(following or "", "")
        if "a" in letters:
            walk.exports_all = sign == "-"
        if "e" in letters:
            walk.exits_on_error = sign == "-" and not walk.conditions
        if "u" in letters:
            walk.needs_set = sign == "-" and not walk.conditions


def _source(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    name = argv[1].text if len(argv) > 1 else None
    if name is None:
        walk.not_followed(node.line, "the name of the sourced file is unknown")
        if any(isinstance(word, Written) and word.raw.startswith("<(") for word in node.words):
            walk.forget(node.line)
        return
    for folder in (walk.scope.cwd, str(Path(walk.path).parent)):
        path = os.path.normpath(Path(folder, name))
        source = walk.load(path)
        if source is not None and walk.has_written(path):
            walk.not_followed(node.line, f"{name} is sourced, and the script changes it before")
            return
        if source is not None and path in (walk.path, *walk.sourcing):
            walk.not_followed(node.line, f"{name} sources itself")
            return
        if source is not None:
            walk.sourcing.append(path)
            walk.inner(source, path, passed(argv[2:]))
            walk.sourcing.pop()
            return
    path = os.path.normpath(Path(walk.scope.cwd, name))
    gone = "/" in name and walk.is_there is not None and walk.scope.cwd and not walk.is_there(path)
    if gone and not walk.may_have_made(path):
        walk.missing(node.line, f"{name}: No such file or directory")
    walk.not_followed(node.line, f"{name} is sourced, but does not exist")


def _cd(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    scope, before = walk.scope, walk.scope.cwd
    words = [argument.text for argument in argv[1:] if argument.text not in _CD_OPTIONS]
    target = words[0] if words else scope.single("HOME")
    if target == "-":
        target = scope.single("OLDPWD")
    elsewhere = isinstance(target, str) and not target.startswith((".", "/"))
    searched = elsewhere and not isinstance(scope.get("CDPATH"), Unset)
    known = isinstance(target, str) and before and not searched
    scope.cwd = os.path.normpath(Path(before, str(target))) if known else ""
    scope.variables["OLDPWD"] = before or None
    folder = scope.cwd
    if folder and walk.is_there is not None and not walk.is_there(folder) and not walk.may_have_made(folder):
        walk.missing(node.line, f"cd: {target}: No such file or directory")
        scope.cwd, walk.status = before, False


def _exit(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    walk.ended = True
    walk.exited = argv[0].text == "exit"
    if len(argv) > 1 and argv[1].text is not None:
        walk.status = argv[1].text == "0"


def _eval(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    words = [argument.text for argument in argv[1:]]
    if None in words:
        walk.not_followed(node.line, "`eval` of an unknown text")
        if not any(isinstance(part, Substitution) for part in below(node.words)):  # `eval "$(conda ...)"`
            walk.forget(node.line)
    else:
        walk.inner(" ".join(word or "" for word in words), walk.path, None)


def _read(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for name in _SET_BY_READING:
        walk.scope.variables[name] = None
    for argument in argv[1:]:
        if argument.text and argument.text.isidentifier():
            walk.scope.variables[argument.text] = None


def _let(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for argument in argv[1:]:
        known = argument.text is not None
        word = argument.text if argument.text is not None else argument.written
        value = evaluated((Text(word),), walk.scope)
        if not known:
            for name in assigned_in(word):
                walk.scope.set(name, None)
        walk.status = value != 0 if known and value is not None else None


def _shopt(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    words = [argument.text for argument in argv[1:]]
    if "-s" in words or "-u" in words:
        walk.scope.folds = "-s" in words if "nocasematch" in words else walk.scope.folds
        walk.last_of_pipe_here = "-s" in words if "lastpipe" in words else walk.last_of_pipe_here
        walk.expands_aliases = "-s" in words if "expand_aliases" in words else walk.expands_aliases
        if "nullglob" in words or "failglob" in words:
            walk.scope.drops_patterns = "-s" in words or walk.conditions > 0


def _alias(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    if walk.expands_aliases:
        walk.aliases |= {(argument.text or argument.written).partition("=")[0] for argument in argv[1:]}


def _true(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    walk.status = argv[0].text != "false"


def _ulimit(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    if not walk.conditions:
        walk.limits.append(tuple(argument.text or "" for argument in argv[1:]))


def _nothing(_walk: Walk, _node: Simple, _argv: list[Argument]) -> None:
    """Do nothing: the command affects neither variables nor the job."""


BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _export),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("read", "getopts", "mapfile", "readarray", "printf", "wait"), _read),
    **dict.fromkeys(("echo", "[", "test", "trap", "sleep"), _nothing),
    **dict.fromkeys((":", "true", "false"), _true),
    "alias": _alias,
    "let": _let,
    "shopt": _shopt,
    "unset": _unset,
    "shift": _shift,
    "set": _set,
    "cd": _cd,
    "eval": _eval,
    "ulimit": _ulimit,
    **dict.fromkeys(("exit", "return"), _exit),
}
