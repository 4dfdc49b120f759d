"""Imports entry points like verl-doctor, and reports what they leave behind. An import may hang, exit, or leave threads and processes.

Runs as a script: a token, the paths of sys.path in JSON, and entry points (`module:attribute`).
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned grandchildren become our children


def left_behind() -> "list[str]":
    """Return what continues after the import, and may end the process, keep it alive, or write its own report."""
    threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    found = ["the thread " + thread.name for thread in threads if thread.is_alive()]
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


def main(token: str, paths: str, *values: str) -> None:
    """Import the entry points, and print the token and what was left behind."""
    sys.path[:] = json.loads(paths)
    own = os.getpid()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        load(values)
    except Exception as error:  # noqa: BLE001 - the doctor meets it again, and reports it
        print(error, file=sys.stderr)
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else bool(ended.code))
    if os.getpid() != own:
        os._exit(0)  # a copy forked by the import
    os.write(1, ("\n" + token + json.dumps(left_behind()) + "\n").encode())
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
