"""Starts the construction (`probes/construction`) under the target's interpreter. It is passed as text.

Called with a token and a JSON object: `package` is the folder of the construction, the rest its request. With
`serve`, any number of similar jobs are built, which are read from standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types

_PARENTS = ("verl_doctor", "verl_doctor.toolkit", "verl_doctor.toolkit.probes")


def main(token: str, request: str) -> None:
    """Load the package from its folder and run it in the current folder, which is private.

    Its parent packages are empty modules, because the environment may have another release of verl-doctor, or
    none.
    """
    order = json.loads(request)
    for name in _PARENTS:
        parent = types.ModuleType(name)
        parent.__path__ = []
        sys.modules[name] = parent
    sys.modules[_PARENTS[-1]].__path__ = [os.path.dirname(order["package"])]  # noqa: PTH120
    construction = importlib.import_module(f"{_PARENTS[-1]}.construction.main")
    start = construction.serve if order.get("serve") else construction.run
    start(token, {**order, "private": os.getcwd()})  # noqa: PTH109


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
