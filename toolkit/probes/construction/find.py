"""Finds functions and classes of verl by their locations in different releases."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from verl_doctor.toolkit.probes.construction.stages import NotHereError


def find(*places: str) -> Any:
    """Return the first of these objects that the installed tree has.

    A place is `module:name` or `module:Class.method`.

    Raises NotHereError if none exists. Errors while importing an existing module propagate, because they
    would also end the job.
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
    """Return whether one of these objects exists."""
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
    """Call a function with those of the known arguments that it accepts: releases add and remove some."""
    return function(**taken(function, known))


def taken(function: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a function accepts.

    Raises NotHereError if it requires an unknown argument.
    """
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
            f"{name} of this release needs {', '.join(missing)}, which verl-doctor does not provide"
        )
    return {name: value for name, value in known.items() if name in named}


def plain(cls: Any) -> Any:
    """Return the class wrapped by a Ray actor class."""
    metadata = getattr(cls, "__ray_metadata__", None)
    actor = metadata.modified_class if metadata is not None else cls
    # Ray derives a class from the decorated class.
    return (
        next((base for base in actor.__mro__[1:] if base.__name__ == actor.__name__), actor)
        if metadata
        else actor
    )
