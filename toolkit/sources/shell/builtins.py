"""The shell's builtins that change a script's state: variables, arguments, folder, another file's text."""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.sources.shell.arithmetic import assigned_in
from verl_doctor.toolkit.sources.shell.command_words import passed
from verl_doctor.toolkit.sources.shell.expand import evaluated, fields
from verl_doctor.toolkit.sources.shell.found import Argument, Stop
from verl_doctor.toolkit.sources.shell.state import OPTIONS, UNSET, Reference, Unset, Value
from verl_doctor.toolkit.sources.shell.syntax import (
    Assignment,
    Simple,
    Substitution,
    Text,
    Written,
    below,
    spaced_assignment,
)
from verl_doctor.toolkit.sources.shell.walk import Walk

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CD_OPTIONS = frozenset({"-L", "-P", "-e", "-@", "--"})
_TO_NUL = re.compile(r"-[a-z]*d")
_STARTUP_FILES = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile", ".zshrc", ".zshenv"}
)
_SET_BY_READING = ("REPLY", "MAPFILE", "OPTARG", "OPTIND")
_ATTRIBUTES = frozenset("ilu")
_CASES = frozenset("lu")  # each replaces the other


def _export(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    name = argv[0].text
    if name == "local" and not walk.is_within("function"):
        walk.state.status = False
        return
    options = [word.raw for word in node.words[1:] if isinstance(word, Written) and word.raw[:1] in "-+"]
    on, off = ("".join(option[1:] for option in options if option[0] == sign) for sign in "-+")
    if name == "readonly":
        on += "r"
    if name == "export":
        on, off = (on.replace("n", ""), off + "x") if "n" in on else (on + "x", off)
    walk.state.status = True
    if "f" in on and "x" in on:
        names = {word.raw for word in node.words[1:] if isinstance(word, Written)}
        walk.exported |= {key: body for key, body in walk.state.functions.items() if key in names}
        return
    # bash expands all words before it assigns the first: in `local A=1 B=$A` the second is the A from before.
    values = [
        walk.variables.value_of(word) if isinstance(word, Assignment) else None for word in node.words[1:]
    ]
    spaced = spaced_assignment(node)
    for word, value in zip(node.words[1:], values, strict=True):
        if isinstance(word, Assignment):
            sums = word.append and "i" in on
            _declare(walk, name, (on, off), word.name, None if sums else value, word.line)
        elif word.raw[:1] not in ("-", "+"):
            for found in fields(word.parts, walk.scope):
                key, sign, text = (found or "").partition("=")
                if found is None:
                    walk.not_followed(word.line, f"`{name}` of an unknown name")
                    walk.variables.forget()
                elif not _NAME.fullmatch(key):
                    message = f"{name}: `{found}': not a valid identifier"
                    walk.missing(word.line, message, "blank" if spaced else "", spaced)
                    walk.state.status = False
                else:
                    _declare(walk, name, (on, off), key, text if sign else UNSET, word.line)


def _declare(
    walk: Walk, command: str | None, letters: tuple[str, str], name: str, value: Value | Unset, line: int
) -> None:
    """Give a variable attributes, and a value unless that is UNSET."""
    state, (on, off) = walk.state, letters
    owns = command in ("local", "declare", "typeset") and walk.is_within("function")
    if owns and "g" not in on:
        walk.variables.localise(name)
    elif owns and any(name in frame for frame in state.locals):
        state.variables[name] = None  # the function's own stays, and the one that it hides changes
        state.locals[:] = [
            {**frame, name: replace(frame[name], value=None)} if name in frame else frame
            for frame in state.locals
        ]
        return
    if "n" in on:
        is_name = isinstance(value, str) and _NAME.fullmatch(value)
        state.variables[name] = Reference(str(value)) if is_name else None
        return
    if "n" in off:
        state.variables[name] = None
    name = state.resolved(name) or name
    before = state.attributes.get(name, "")
    if before is not None:
        added = _ATTRIBUTES & {*on}
        lost = (_ATTRIBUTES & {*off}) | (_CASES if added & _CASES else set())
        state.attributes[name] = "".join(sorted({*before} - lost | added))
    if not isinstance(value, Unset):
        if "r" in (before or "") and command != "export":
            state.status = False
            return
        walk.variables.store(name, value, line, exports="x" in on)
    elif "x" in on:
        walk.variables.export(name, state.value(name), line)
    if "x" in off and state.exports(name) is not False:
        walk.variables.unexport(name, line)
    if "r" in on and (letters_now := state.attributes.get(name)) is not None:
        state.attributes[name] = letters_now + "r"


def _unset(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    options = "".join(argument.text for argument in argv[1:] if argument.text and argument.text[0] == "-")
    state = walk.state
    state.status = True
    for argument in argv[1:]:
        name = argument.text
        if name is None:
            walk.not_followed(argument.line, "`unset` of an unknown name")
        elif name.startswith("-"):
            continue
        elif "f" in options:
            state.functions.pop(name, None)
        elif "[" in name:
            state.variables[name.partition("[")[0]] = None
        elif "n" in options:
            state.variables[name] = UNSET
        elif "r" in (state.attributes.get(name, "") or ""):
            state.status = False
        else:
            was_set = not isinstance(state.value(name), Unset)
            if not was_set and "v" not in options:
                state.functions.pop(name, None)
            walk.variables.unset(state.resolved(name) or name, argument.line)


def _shift(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    count, arguments = argv[1].text if len(argv) > 1 else "1", walk.state.arguments
    if count is None or not count.isdigit():
        walk.state.arguments = [None] * max(1, len(arguments))
    elif int(count) <= len(arguments):
        walk.state.arguments = arguments[int(count) :]
        walk.state.status = True
    else:
        walk.state.status = False if walk.state.called and None not in arguments else None


def _set(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    walk.state.status = True
    words = iter(enumerate(argv[1:], 1))
    for place, argument in words:
        text = argument.text or ""
        if text in ("--", "-") or text[:1] not in ("-", "+"):
            if text not in ("--", "-"):
                walk.state.arguments = passed(argv[place:])
            elif text == "--" or place + 1 < len(argv):
                walk.state.arguments = passed(argv[place + 1 :])
            return
        for letter in text[1:]:
            _, following = next(words, (0, None)) if letter == "o" else (0, None)
            name = following.text if following else OPTIONS.get(letter)
            if name:
                walk.state.options[name] = text[0] == "-"


def _source(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    name = argv[1].text if len(argv) > 1 else None
    if name is None:
        walk.not_followed(node.line, "the name of the sourced file is unknown")
        if any(isinstance(word, Written) and word.raw.startswith("<(") for word in node.words):
            walk.variables.forget()
        return
    folders = [walk.state.cwd, str(Path(walk.path).parent)]  # the job may be started in the script's folder
    if walk.state.cwd and "OLDPWD" in walk.state.variables:  # `cd` led to the first
        folders.pop()
    for folder in folders:
        path = os.path.normpath(Path(folder, name))
        source = walk.load(path)
        if source is not None and walk.files.has_written(path):
            walk.not_followed(node.line, f"{name} is sourced, and the script changes it before")
            return
        if source is not None and path in (walk.path, *walk.sourcing):
            walk.not_followed(node.line, f"{name} sources itself")
            return
        if source is not None:
            source = source.replace("\n", "\r\n") if walk.is_of_windows(path) else source
            walk.sourcing.append(path)
            walk.inner(source, path, passed(argv[2:]))
            walk.sourcing.pop()
            return
    path = os.path.normpath(Path(walk.state.cwd, name))
    gone = "/" in name and walk.state.cwd != "" and walk.presence.is_gone(path)
    # The environment of the job is where it is checked; other files may belong to the machine on which it
    # runs.
    is_own = name.endswith("/bin/activate") or not walk.presence.is_of_machine(name)
    may_be_there = walk.files.may_have_made(path) or walk.presence.may_have_installed(Path(path))
    if gone and is_own and not may_be_there:
        of_shell = posixpath.basename(name) in _STARTUP_FILES
        walk.missing(
            node.line, f"{name}: No such file or directory", "startup file" if of_shell else "", name
        )
    walk.not_followed(node.line, f"{name} is sourced, but does not exist")


def _cd(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    scope, state, before = walk.scope, walk.state, walk.state.cwd
    words = [argument.text for argument in argv[1:] if argument.text not in _CD_OPTIONS]
    target = words[0] if words else scope.single("HOME")
    if target == "-":
        target = scope.single("OLDPWD")
    elsewhere = isinstance(target, str) and not target.startswith((".", "/"))
    searched = elsewhere and not isinstance(scope.get("CDPATH"), Unset)
    known = isinstance(target, str) and before and not searched
    folder = os.path.normpath(Path(before, str(target))) if known else ""
    may_be_there = walk.files.may_have_made(folder) or walk.presence.may_have_installed(Path(folder))
    state.cwd = folder
    state.variables["OLDPWD"] = before or None
    if folder and walk.presence.is_gone(folder) and not may_be_there:
        walk.missing(node.line, f"cd: {target}: No such file or directory")
        state.cwd, state.status = before, False


def _exit(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    is_return = argv[0].text == "return"
    walk.state.status = walk.previous
    if len(argv) > 1:
        walk.state.status = None if argv[1].text is None else argv[1].text == "0"
    if is_return and not walk.is_within("function", "source"):
        walk.state.status = False  # bash goes on
    else:
        code = argv[1].text if len(argv) > 1 else ""
        certain = not (is_return or walk.conditions or walk.apart_of or walk.unread)
        if certain and code and code.isdigit() and int(code) and walk.presence.is_there is not None:
            walk.stops.append(Stop(walk.path, node.line, f"exit {code}", whole=False))
        walk.leave("function" if is_return else "shell")


def _break(walk: Walk, _node: Simple, _argv: list[Argument]) -> None:
    walk.state.status = True
    walk.leave("loop")


def _eval(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    words = [argument.text for argument in argv[1:]]
    if None in words:
        walk.not_followed(node.line, "`eval` of an unknown text")
        if not any(isinstance(part, Substitution) for part in below(node.words)):  # `eval "$(conda ...)"`
            walk.variables.forget()
    else:
        walk.inner(" ".join(word or "" for word in words), walk.path, None, node.line)


def _read(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    for name in _SET_BY_READING:
        walk.state.variables[name] = None
    for argument in argv[1:]:
        if argument.text is None:
            walk.variables.forget()
        elif _NAME.fullmatch(argument.text):
            walk.variables.store(argument.text, None, node.line)
    # A text has no NUL: `read -d ''` comes to its end, whatever it has read.
    words = [argument.text for argument in argv[1:]]
    to_the_end = any(end == "" and _TO_NUL.fullmatch(word or "") for word, end in itertools.pairwise(words))
    walk.state.status = False if to_the_end and node.input is not None and not node.input.is_file else None


def _printf(walk: Walk, node: Simple, argv: list[Argument]) -> None:
    if len(argv) > 2 and argv[1].text == "-v":
        _read(walk, node, argv[1:3])
    walk.state.status = None if node.written else True


def _let(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    for argument in argv[1:]:
        known = argument.text is not None
        word = argument.text if argument.text is not None else argument.written
        value = evaluated((Text(word),), walk.scope)
        if not known:
            for name in assigned_in(word):
                walk.scope.set(name, None)
        walk.state.status = value != 0 if known and value is not None else None


def _shopt(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    words = [argument.text for argument in argv[1:]]
    if "-s" in words or "-u" in words:
        walk.state.options.update(
            {word: "-s" in words for word in words if word and not word.startswith("-")}
        )
        walk.state.status = True


def _alias(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    names = {(argument.text or argument.written).partition("=")[0] for argument in argv[1:]}
    if walk.state.option("expand_aliases") is not False or walk.scope.is_zsh:
        walk.state.aliases |= names
    elif not walk.state.option("posix"):
        walk.state.unexpanded |= names


def _unalias(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    names = {argument.text or "" for argument in argv[1:]}
    walk.state.aliases = set() if "-a" in names else walk.state.aliases - names


def _true(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    walk.state.status = argv[0].text != "false"


def _echo(walk: Walk, node: Simple, _argv: list[Argument]) -> None:
    walk.state.status = None if node.written else True


def _ulimit(walk: Walk, _node: Simple, argv: list[Argument]) -> None:
    if not walk.conditions:
        walk.state.limits.append(tuple(argument.text or "" for argument in argv[1:]))


def _nothing(_walk: Walk, _node: Simple, _argv: list[Argument]) -> None:
    """Do nothing: the command affects neither variables nor the job."""


Builtin = Callable[[Walk, Simple, list[Argument]], None]

BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _export),
    **dict.fromkeys(("source", "."), _source),
    **dict.fromkeys(("read", "getopts", "mapfile", "readarray", "wait"), _read),
    **dict.fromkeys(("[", "test", "trap", "sleep"), _nothing),
    **dict.fromkeys(("break", "continue"), _break),
    "echo": _echo,
    "printf": _printf,
    **dict.fromkeys((":", "true", "false"), _true),
    "alias": _alias,
    "unalias": _unalias,
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
