"""The shell's builtins that change a script's state: variables, arguments, the folder, another file's text."""

from __future__ import annotations

import os
import re
from pathlib import Path

from verl_doctor.toolkit.sources.shell.expand import UNSET, fields
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Simple, Written
from verl_doctor.toolkit.sources.shell.walk import Argument, Builtin, Given, Walk

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _export(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    options = [word.raw for word in node.words[1:] if isinstance(word, Written) and word.raw.startswith("-")]
    name = argv[0].text
    letters = "".join(option.lstrip("-") for option in options)
    exports = name == "export" or "x" in letters
    if name == "export" and "n" in letters:
        exports = False
    for word in node.words[1:]:
        if isinstance(word, Assignment):
            walk.assign(word, exports=exports)
            continue
        if word.raw.startswith("-"):
            continue
        for value in fields(word.parts, walk.scope):
            if value is None:
                walk.not_followed(word.line, f"`{name}` of an unknown name")
            elif not _NAME.fullmatch(value.partition("=")[0]):
                walk.missing(word.line, f"{name}: `{value}': not a valid identifier")
            elif "=" in value:
                key, _, text_ = value.partition("=")
                walk.scope.variables[key] = text_
                if exports:
                    walk.export(key, text_, word.line)
            elif exports:
                walk.export(value, walk.scope.get(value), word.line)


def _unset(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for argument in argv[1:]:
        if argument.text is None:
            walk.not_followed(argument.line, "`unset` of an unknown name")
        elif argument.text == "-f":
            return
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
            walk.scope.arguments = [rest.text for rest in argv[place + 1 :]]
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
        return
    for folder in (walk.scope.cwd, str(Path(walk.path).parent)):
        path = os.path.normpath(Path(folder, name))
        source = walk.load(path)
        if source is not None:
            walk.inner(source, path, [argument.text for argument in argv[2:]])
            return
    path = os.path.normpath(Path(walk.scope.cwd, name))
    gone = "/" in name and walk.is_there is not None and walk.scope.cwd and not walk.is_there(path)
    if gone and not walk.may_have_made(path):
        walk.missing(node.line, f"{name}: No such file or directory")
    walk.not_followed(node.line, f"{name} is sourced, but does not exist")


def _cd(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    target = next(
        (argument.text for argument in argv[1:] if argument.text != "--"), walk.scope.environ.get("HOME")
    )
    before = walk.scope.cwd
    walk.scope.cwd = os.path.normpath(Path(before, target)) if target and before else ""
    folder = walk.scope.cwd
    known = (
        folder
        and len(argv) == 2
        and not (target or "").startswith("-")
        and "CDPATH" not in walk.scope.environ
    )
    if known and walk.is_there is not None and not walk.is_there(folder) and not walk.may_have_made(folder):
        walk.missing(node.line, f"cd: {target}: No such file or directory")


def _exit(walk: Walk, _node: Simple, _argv: list[Argument]) -> None:
    walk.ended = True


def _eval(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    words = [argument.text for argument in argv[1:]]
    if None in words:
        walk.not_followed(node.line, "`eval` of an unknown text")
    else:
        walk.inner(" ".join(word or "" for word in words), walk.path, None)


def _read(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for argument in argv[1:]:
        if argument.text and argument.text.isidentifier():
            walk.scope.variables[argument.text] = None


def _ulimit(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    if not walk.conditions:
        walk.limits.append(tuple(argument.text or "" for argument in argv[1:]))


def _nothing(_walk: Walk, _node: Simple, _argv: list[Argument]) -> None:
    """Do nothing: the command affects neither variables nor the job."""


BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _export),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("read", "getopts", "mapfile", "readarray", "printf", "let"), _read),
    **dict.fromkeys(
        ("echo", ":", "true", "false", "[", "[[", "test", "((", "trap", "wait", "sleep", "shopt"),
        _nothing,
    ),
    "unset": _unset,
    "shift": _shift,
    "set": _set,
    "cd": _cd,
    "eval": _eval,
    "ulimit": _ulimit,
    **dict.fromkeys(("exit", "return"), _exit),
}
