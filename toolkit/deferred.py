"""Imports on first use: the functions of rules, fixes and collectors, and the classes of facts."""

from __future__ import annotations

import importlib
import threading
from functools import cached_property
from typing import Any

# Two threads that import modules of one import cycle could each see the other's half-loaded.
_LOCK = threading.RLock()


def imported(module: str, path: str) -> Any:
    """Return the object with this dotted name in a module.

    Raises ImportError or AttributeError when it does not exist.
    """
    with _LOCK:
        found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


class Deferred:
    """A function that is imported when it is first called.

    `module` and `path` locate it, `defined_in` is the module that defines it, and `documentation` its
    docstring.
    """

    def __init__(self, module: str, path: str, defined_in: str, *, documentation: str | None = None) -> None:
        self._module = module
        self._path = path
        self.__module__ = defined_in
        self.__name__ = path.partition(".")[0]
        self.__doc__ = documentation

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Import the function and call it."""
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<{self._module}:{self._path}, imported when it is called>"

    @cached_property
    def function(self) -> Any:
        """The function itself. Raises whatever its import raises."""
        return imported(self._module, self._path)


def function_of(function: Any) -> Any:
    """Return the function itself, importing it if that was deferred."""
    return function.function if isinstance(function, Deferred) else function
