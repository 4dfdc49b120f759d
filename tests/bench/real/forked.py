"""Answers requests, a line of JSON each, in forks of a process that has imported what takes long."""

import json
import os
import sys


def serve(stream, answer, failed, died):
    """Write `ready`, then the answer to each line of standard input, what `failed` makes of an exception, or `died`."""
    stream.write("ready\n")
    stream.flush()
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = json.dumps(answer(json.loads(line)))
            except BaseException as error:  # noqa: BLE001 - a package may raise anything
                said = json.dumps(failed(error))
            with os.fdopen(write, "w") as back:
                back.write(said)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as back:
            said = back.read()
        os.waitpid(child, 0)
        stream.write((said or json.dumps(died)) + "\n")
        stream.flush()
