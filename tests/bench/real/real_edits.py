"""Really imports and calls what `bench_edits.py` has edited; run by an interpreter that has torch, vLLM and verl.

A server: it loads packages once, then forks a child for each JSON request, which puts the request's folders first on `sys.path`,
imports the modules and tries the probes: expressions that are evaluated in a module, and calls whose arguments are bound to the
signature of what is called. It answers with one JSON line. Nothing but the standard library and the packages under test is used.
"""

# ruff: noqa: BLE001 - a package may raise anything, and expressions are what is tried

import contextlib
import importlib
import inspect
import json
import os
import sys

from forked import serve


def told(error):
    return f"{type(error).__name__}: {error}"[:200]


def tried(probe):
    """What goes wrong with one probe, "" for nothing."""
    space = dict(vars(sys.modules[probe["module"]]))
    try:
        for statement in probe["imports"]:
            exec(statement, space)
        value = eval(probe["of"], space)
        if probe.get("called") and not callable(value):
            return f"TypeError: {probe['of']} is not callable"
        if "positional" not in probe:
            return ""
        try:
            signature = inspect.signature(value)
        except ValueError:
            return ""
        signature.bind(*[None] * probe["positional"], **dict.fromkeys(probe["keywords"]))
    except BaseException as error:
        return told(error)
    return ""


def answer(request):
    sys.path[:0] = request["path"]
    importlib.invalidate_caches()
    for name in request["modules"]:
        try:
            importlib.import_module(name)
        except BaseException as error:
            return {"import": told(error)}
    files = {name: getattr(module, "__file__", "") or "" for name, module in sys.modules.items()}
    probes = [probe for probe in request["probes"] if probe["module"] in sys.modules]
    found = {"failed": {probe["key"]: text for probe in probes if (text := tried(probe))}}
    return {**found, "files": files} if request.get("files") else found


def main():
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the packages print
    begin = json.loads(sys.stdin.readline())
    sys.path[:0] = begin["path"]
    for name in begin["modules"]:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
    serve(stream, answer, lambda error: {"import": told(error)}, {"import": "the child died"})


if __name__ == "__main__":
    main()
