"""Import what entry points name, as the doctor would, and report what became of the process: it may hang, exit, or be kept by a thread.

Runs as a script: a token, the paths of sys.path in JSON, and entry points (`module:attribute`).
"""

import importlib
import json
import os
import sys
import threading


def left_behind() -> "list[str]":
    """The threads that would keep the process from ending."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and thread.is_alive() and not thread.daemon
    ]


def main(token: str, paths: str, *values: str) -> None:
    """Import them, and write the token and the threads that were left behind."""
    sys.path[:] = json.loads(paths)
    try:
        load(values)
    except Exception as error:  # noqa: BLE001 - the doctor meets it again, and reports it
        print(error, file=sys.stderr)
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else bool(ended.code))
    os.write(1, ("\n" + token + json.dumps(left_behind()) + "\n").encode())
    os._exit(0)  # whatever a plugin registered to run at exit


def load(values: "tuple[str, ...]") -> None:
    """Import what they name."""
    for value in values:
        module, _, attributes = value.partition(":")
        found = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)


if __name__ == "__main__":
    main(*sys.argv[1:])
