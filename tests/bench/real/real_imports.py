"""Really imports what a bench wants to know about; run by `truth.py` under an interpreter that has torch, never by a person.

A server: it loads the heavy packages once, reads one JSON request a line and forks a child for each, which puts the
request's folders first on `sys.path`, does what is asked and answers with one JSON line. Only the standard library and
the packages under test are used.

An import that fails for a reason of the interpreter (a package that is not installed or of another release) would hide
all that comes after it. So a request may name places (file, line) at which a failing import is made good with a
stand-in, which is reported; everywhere else an import fails as it does in a job.
"""

# ruff: noqa: A002, BLE001 - it stands in for __import__, and a package may raise anything

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
import types
from pathlib import Path

from forked import serve

HEAVY = (
    "torch", "torch._dynamo", "transformers", "ray", "pydantic", "fastapi", "tensordict", "hydra", "omegaconf", "numpy",
    "pandas", "datasets", "aiohttp", "zmq", "openai", "PIL", "msgspec", "uvicorn", "numba", "xgrammar", "cv2",
)  # fmt: skip
_CANNOT = re.compile(r"cannot import name '(\w+)'")


class _StandIn(type):
    """Makes classes that can be subclassed, called, indexed, used as decorators and asked for any attribute."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


def stand_in(name):
    def made(cls, *arguments, **keywords):
        decorates = (
            len(arguments) == 1 and not keywords and isinstance(arguments[0], (type, types.FunctionType))
        )
        return arguments[0] if decorates else object.__new__(cls)

    body = {"__new__": made, "__init__": lambda self, *a, **k: None, "__module__": "stand_in"}
    body["__call__"] = lambda self, *a, **k: a[0] if a else None
    body["__getattr__"] = lambda self, name: stand_in(name)
    return _StandIn(name, (), body)


class Imports:
    """Stands in for `__import__`: lets the allowed places succeed, and notes what was lacking there."""

    def __init__(self, allowed):
        self.allowed = {(file, line) for file, line in allowed}
        self.lacking = []
        self.real = builtins.__import__

    def __call__(self, name, globals=None, locals=None, fromlist=(), level=0):
        frame = sys._getframe(1)
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place not in self.allowed:
            return self.real(name, globals, locals, fromlist, level)
        try:
            module = self.real(name, globals, locals, fromlist, level)
        except ImportError:
            for wanted in fromlist or ("",):
                self._note(place, _absolute(name, globals, level), wanted)
            module = _stand_in_module(name, fromlist)
            if not fromlist and "." in name:  # `import a.b` binds a
                with contextlib.suppress(ImportError):
                    module = self.real(name.partition(".")[0])
            return module
        lacking = [wanted for wanted in fromlist or () if wanted != "*" and not _offers(module, wanted)]
        if not lacking:
            return module
        copy = types.ModuleType(module.__name__)
        copy.__dict__.update({key: value for key, value in vars(module).items() if key not in lacking})
        for wanted in fromlist:
            if wanted in lacking:
                self._note(place, module.__name__, wanted)
                setattr(copy, wanted, stand_in(wanted))
            elif wanted != "*":
                setattr(
                    copy,
                    wanted,
                    getattr(module, wanted, None) or sys.modules.get(f"{module.__name__}.{wanted}"),
                )
        return copy

    def _note(self, place, module, name):
        self.lacking.append([*place, module, name])


def _absolute(name, globals, level):
    return (
        importlib.util.resolve_name("." * level + name, (globals or {}).get("__package__")) if level else name
    )


def _offers(module, name):
    return hasattr(module, name) or f"{module.__name__}.{name}" in sys.modules


def _stand_in_module(name, fromlist):
    module = types.ModuleType(name)
    module.__path__ = []
    for wanted in fromlist or ():
        setattr(module, wanted, stand_in(wanted))
    module.__getattr__ = stand_in
    return module


def failure(error):
    """Where and why an import failed: the innermost line of a file, the exception, and what was wanted.

    An ImportError that is raised with other words because of another one is that other one.
    """
    while getattr(error, "name", "") is None and isinstance(error.__context__, ImportError):
        error = error.__context__
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")
    ]
    own = Path(__file__).parent
    frames = [frame for frame in frames if Path(frame.filename).parent != own]
    last = frames[-1] if frames else None
    named = _CANNOT.search(str(error))
    return {
        "file": last.filename if last else "",
        "line": last.lineno if last else 0,
        "type": next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"),
        "said": f"{type(error).__name__}: {error}"[:300],
        "module": getattr(error, "name", None) or "",
        "name": named[1] if named else "",
        "stack": [f"{frame.filename}:{frame.lineno}" for frame in frames[-6:]],
    }


def load(modules):
    """Import modules in turn; the first failure ends it."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            return {"failed": failure(error), "while": name}
    return {}


def names(wanted):
    """For each (module, name): is it there? Stops at the first import that fails for a reason that lies deeper."""
    found = []
    for module, name in wanted:
        try:
            exec(f"from {module} import {name}" if name else f"import {module}", {})
            found.append("present")
        except ImportError as error:
            said = failure(error)
            itself = not said["file"] and (
                (said["module"] == module and said["name"] == name)
                or (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{said['module']}."))
            )
            if not itself:
                return {"found": found, "failed": said}
            found.append("missing")
        except BaseException as error:
            found.append("undetermined: " + failure(error)["said"])
    return {"found": found}


def conditions(wanted):
    """For each (module, expression): whether it holds there; None where the module's own names do not decide it."""
    found = []
    for name, text in wanted:
        try:
            found.append(bool(eval(text, dict(vars(importlib.import_module(name))))))
        except BaseException:
            found.append(None)
    return {"found": found}


def members(wanted):
    """For each (kind, owner, name): what the live object says."""
    return {"found": [_member(*use) for use in wanted]}


def _member(kind, owner, name):
    try:
        thing = _thing(owner)
    except BaseException as error:
        return f"undetermined: {failure(error)['said']}"
    if kind in ("attribute", "store"):
        if hasattr(thing, name) or (inspect.ismodule(thing) and _is_module(f"{owner}.{name}")):
            return "present"
        if inspect.isclass(thing):
            return "present" if _of_instances(thing, name) else "missing"
        return "missing"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError) as error:
        return f"undetermined: {error}"
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if kind == "keyword":
        parameter = signature.parameters.get(name)
        taken = parameter is not None and parameter.kind not in (
            parameter.POSITIONAL_ONLY,
            parameter.VAR_POSITIONAL,
        )
        return (
            "present"
            if taken or inspect.Parameter.VAR_KEYWORD in kinds or _ignores_others(thing)
            else "missing"
        )
    if kind == "required":
        parameter = signature.parameters.get(name)
        return "missing" if parameter is not None and parameter.default is parameter.empty else "present"
    return "undetermined: not asked"


def _ignores_others(kind):
    """Whether pydantic made this class so that keywords which are no fields are ignored."""
    return hasattr(kind, "__pydantic_fields__") and kind.__pydantic_config__.get("extra") in (
        None,
        "ignore",
        "allow",
    )


def _is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _thing(dotted):
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name and f"{dotted}.".startswith(f"{error.name}."):
                continue
            raise
        for part in parts[end:]:
            thing = inspect.getattr_static(thing, part) if inspect.isclass(thing) else getattr(thing, part)
            thing = getattr(thing, "__func__", thing)
        return thing
    raise ImportError(dotted)


def _of_instances(kind, name):
    """Whether instances have it: a field, an annotation, a slot, or something that a method stores on `self`."""
    stored = re.compile(rf"\bself\.{name}\b[^=\n]*=(?!=)|\bself\.{name}: ")
    for part in kind.__mro__:
        if name in getattr(part, "__annotations__", {}) or name in getattr(part, "__dataclass_fields__", {}):
            return True
        if part.__module__ == "builtins":
            continue
        with contextlib.suppress(OSError, TypeError):
            if stored.search(inspect.getsource(part)):
                return True
        if "__getattr__" in vars(part):
            return True
    return False


def let_register_twice():
    """vLLM registers models that a newer transformers knows itself, which that refuses."""
    with contextlib.suppress(Exception):
        from transformers import AutoConfig

        register = AutoConfig.register
        AutoConfig.register = staticmethod(
            lambda kind, config, exist_ok=False: register(kind, config, exist_ok=True),
        )


def answer(request):
    sys.path[:0] = request["path"]
    let_register_twice()
    imports = builtins.__import__ = Imports(request["allowed"])
    said = {"load": load, "names": names, "members": members, "conditions": conditions}[request["do"]](
        request["of"]
    )
    return {**said, "lacking": imports.lacking}


def main():
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the packages print
    for name in HEAVY:
        if name.partition(".")[0] in sys.argv[1:]:  # what is under test, and what loads it
            continue
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    died = {"failed": {"said": "the child died", "file": "", "line": 0}}
    serve(stream, answer, lambda error: {"failed": failure(error)}, died)


if __name__ == "__main__":
    main()
