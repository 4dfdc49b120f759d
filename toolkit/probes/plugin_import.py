"""Imports entry points like verl-doctor, and reports what they leave behind or replace.

An import may hang, exit, leave threads and processes, or replace what all code uses: built-in functions,
loaded modules, the finders of modules. Runs as a script: a token, the paths of sys.path in JSON, and entry
points (`module:attribute`).
"""

import _thread
import builtins
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import typing

_MODULE, _FINDER, _GONE = "module ", "finder ", object()
_OWN = frozenset({"builtins._", "module __main__"})  # set by an interactive Python and by tests
_RECURSION = sys.getrecursionlimit()
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned grandchildren become our children


def shared() -> "dict[str, object]":
    """Return what all code of this process uses, by name."""
    found = {"builtins." + name: value for name, value in vars(builtins).items()}
    found.update((_MODULE + name, module) for name, module in list(sys.modules.items()))
    found.update((_FINDER + str(finder), finder) for finder in sys.meta_path)
    return found


def restored(before: "dict[str, object]") -> "list[str]":
    """Return the names of what was replaced or removed since, and restore it. What was added stays."""
    now = shared()
    lowered = sys.getrecursionlimit() < _RECURSION
    if lowered:
        sys.setrecursionlimit(_RECURSION)
    replaced = [
        name for name, value in before.items() if now.get(name, _GONE) is not value and name not in _OWN
    ]
    for name in replaced:
        kind, _, rest = name.partition(" ")
        if kind == _MODULE.strip():
            sys.modules[rest] = before[name]  # type: ignore[assignment]
        elif kind != _FINDER.strip():
            setattr(builtins, name.partition(".")[2], before[name])
    if any(name.startswith(_FINDER) for name in replaced):
        finders = [finder for name, finder in before.items() if name.startswith(_FINDER)]
        sys.meta_path[:] = finders  # type: ignore[assignment]
    return [*replaced, *(["the limit of recursion"] if lowered else [])]


def left_behind() -> "list[str]":
    """Return what continues after the import and may end it, keep it alive, or write its own report.

    It may end the process, or keep the process alive.
    """
    threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    found = ["the thread " + thread.name for thread in threads if thread.is_alive()]
    found += ["a thread without a name" for _ in _unnamed]
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        found.append("an alarm")
    try:
        while True:
            number, _ = os.waitpid(-1, os.WNOHANG)
            if not number:
                found.append("a process")
                break
    except ChildProcessError:
        pass
    return found


_unnamed: "list[object]" = []


def watch_unnamed_threads() -> None:
    """Note the threads that are started with `_thread`, which `threading` does not list, while they run."""
    start = _thread.start_new_thread

    def noting(function: "typing.Callable[..., object]", *arguments: object) -> int:
        def run(*given: object, **named: object) -> None:
            try:
                function(*given, **named)
            finally:
                _unnamed.remove(function)

        _unnamed.append(function)
        return start(run, *arguments)  # type: ignore[call-overload, no-any-return]

    vars(_thread)["start_new_thread"] = vars(_thread)["start_new"] = noting


def main(token: str, paths: str, *values: str) -> None:
    """Import the entry points, and print the token and what was left behind."""
    sys.path[:] = json.loads(paths)
    own = os.getpid()
    importlib.import_module("verl_doctor.toolkit.rule")
    before = shared()
    watch_unnamed_threads()
    dumps = json.dumps
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        load(values)
    except Exception as error:  # noqa: BLE001 - the doctor meets it again, and reports it
        print(error, file=sys.stderr)
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else bool(ended.code))
    if os.getpid() != own:
        os._exit(0)  # a copy forked by the import
    replaced = restored(before)
    importlib.import_module("colorsys")  # hangs if a finder of the plugin does
    answer = {"left": left_behind(), "replaced": replaced}
    os.write(1, ("\n" + token + dumps(answer) + "\n").encode())
    os._exit(0)  # skip whatever a plugin registered to run at exit


def load(values: "tuple[str, ...]") -> None:
    """Import the entry points."""
    for value in values:
        module, _, attributes = value.partition(":")
        found = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)


if __name__ == "__main__":
    main(*sys.argv[1:])
