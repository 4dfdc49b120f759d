"""The recipes that a call of `make` runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from verl_doctor.toolkit.collectors.launch.launch_state import DEEPEST, LaunchState, path_in
from verl_doctor.toolkit.sources.make.makefile import NAMES, Makefile
from verl_doctor.toolkit.sources.make.recipes import Recipe, Run
from verl_doctor.toolkit.sources.make.request import request_of
from verl_doctor.toolkit.sources.make.variables import Variables
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Lines
from verl_doctor.toolkit.sources.shell.walk import Walk


@dataclass(frozen=True)
class MakeRun:
    """A makefile, the folder in which it is run, and its recipes, which are read as they are followed.

    Reading one may raise NotFollowedError or RecursionError.
    """

    path: str
    folder: str
    recipes: Iterator[tuple[Recipe, Lines]]


def make_run(
    state: LaunchState, walk: Walk, call: Call, words: Sequence[Argument], original: Call
) -> MakeRun | None:
    """Return what `make` with these words runs; None for nothing, noted in `unread` if it is unknown."""
    first = call.argv[0]
    where = f"{first.path}:{first.line}"
    request = request_of([word.text for word in words])
    if request is None or not (call.folder or state.cwd):
        state.unread.append(f"{where}: the words after `make` are unknown")
        return None
    folder = path_in(call.folder or state.cwd, request.folder)
    names = [request.file] if request.file else NAMES
    found = next(
        (text for name in names if (text := walk.files.text_at(path_in(folder, name), before=original))),
        None,
    )
    if not request.runs or walk.depth >= DEEPEST:
        return None
    if request.problem:
        state.unread.append(f"{where}: {request.problem}")
        return None
    if found is None:
        state.unread.append(f"{where}: `make` has no makefile in {folder} that can be read")
        return None
    shell = state.of_shell(replace(call, folder=folder))

    def environ(name: str) -> str | None:
        value = shell.value(name)
        return value if isinstance(value, str) and shell.exports(name) is not False else None

    def is_there(name: str) -> bool:
        return state.is_there is not None and state.is_there(path_in(folder, name))

    def included(name: str) -> str | None:
        folders = [folder, *(path_in(folder, other) for other in request.included)]
        texts = (state.load(path_in(other, name)) for other in folders)
        return next((text for text in texts if text is not None), None)

    def recipes() -> Iterator[tuple[Recipe, Lines]]:
        makefile = Makefile(found.text, Variables(request.given, environ, folder), included)
        for recipe in Run(makefile, folder, is_there).recipes(request.goals):
            yield recipe, Lines(recipe.text, found.path, recipe.line or 1)

    return MakeRun(found.path, folder, recipes())
