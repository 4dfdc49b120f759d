"""Finds functions and classes of verl by the places that releases have kept them in."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from verl_doctor.toolkit.probes.construction.stages import NotHereError


def find(*places: str) -> Any:
    """The first of these objects that the installed tree has. A place is `module:name` or `module:Class.method`.

    Raises NotHereError when none has it. What an import of an existing module raises is raised on: it would end the job, too.
    """
    for place in places:
        module, _, path = place.partition(":")
        found = _module(module)
        for step in path.split(".") if path else ():
            found = getattr(found, step, None)
        if found is not None:
            return found
    raise NotHereError(f"this release has no {places[0].rpartition(':')[2] or places[0]}")


def has(*places: str) -> bool:
    """Whether one of them is there."""
    try:
        find(*places)
    except NotHereError:
        return False
    return True


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def called(function: Callable[..., Any], **known: Any) -> Any:
    """Call a function with those of the known arguments that it takes by name: releases add and remove some."""
    return function(**taken(function, known))


def taken(function: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that a function takes. Raises NotHereError when it needs one that is not known."""
    parameters = inspect.signature(function).parameters.values()
    named = {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    needed = {
        parameter.name
        for parameter in parameters
        if parameter.name in named and parameter.default is parameter.empty
    } - {"self"}
    if missing := sorted(needed - set(known)):
        name = getattr(function, "__qualname__", repr(function))
        raise NotHereError(
            f"{name} of this release needs {', '.join(missing)}, which verl-doctor does not make"
        )
    return {name: value for name, value in known.items() if name in named}


def plain(cls: Any) -> Any:
    """The class behind a Ray actor's."""
    metadata = getattr(cls, "__ray_metadata__", None)
    actor = metadata.modified_class if metadata is not None else cls
    # Ray derives a class from the one that is decorated.
    return (
        next((base for base in actor.__mro__[1:] if base.__name__ == actor.__name__), actor)
        if metadata
        else actor
    )
