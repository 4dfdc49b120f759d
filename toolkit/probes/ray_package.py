"""Reports which files of a folder Ray would package.

Runs under the target's interpreter, with the target's Ray.

It is passed as text, so it needs the standard library and Ray only. Ray's own functions choose the files, as
they did from Ray 2.10 to 2.60; nothing is packed and no file is opened except lists of exclusions. Called
with a token and a JSON object: `folder`, `excludes`, and `limit`, the seconds after which the count so far is
reported.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

MOST = 300
"""The number of folders and of files reported, the largest first."""

DEPTH = 5
CODE = frozenset((".py", ".pyi", ".sh", ".so", ".cu", ".cpp", ".h", ".jinja", ".j2"))
"""Suffixes of files that a job may need without naming them."""


class LateError(Exception):
    """Time has run out."""


class Package:
    """The paths counted so far.

    A file takes its size and two entries in the ZIP archive, which Ray does not compress.
    """

    def __init__(self, root: Path, limit: float) -> None:
        self.root = root
        self.end = time.monotonic() + limit
        self.size, self.number = 22, 0
        self.folders: Counter[str] = Counter()
        self.code: Counter[str] = Counter()
        self.files: dict[str, int] = {}
        self.environments: list[str] = []

    def count(self, path: Path) -> None:
        """Count one path that Ray would package."""
        if time.monotonic() > self.end:
            raise LateError
        if not os.path.isfile(path):
            return
        name = str(path.relative_to(self.root))
        size = path.stat().st_size
        self.size += size + 76 + 2 * len(name.encode("utf-8", "surrogateescape"))
        self.number += 1
        self.files[name] = size
        if len(self.files) > 20 * MOST:
            self.files = dict(self.largest(self.files))
        if path.name == "pyvenv.cfg" and "/" in name:
            self.environments.append(name.rpartition("/")[0])
        parts = name.split("/")[:-1][:DEPTH]
        for depth in range(1, len(parts) + 1):
            above = "/".join(parts[:depth])
            self.folders[above] += size
            self.code[above] += path.suffix in CODE

    @staticmethod
    def largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
        """Return the largest of these."""
        return sorted(sizes.items(), key=lambda item: -item[1])[:MOST]

    def summary(self) -> dict[str, Any]:
        """Return all that was counted."""
        return {
            "size": self.size,
            "number": self.number,
            "folders": [(name, size, self.code[name]) for name, size in self.largest(self.folders)],
            "files": self.largest(self.files),
            "environments": self.environments,
        }


def dashboard_limit(constants: Any) -> int:
    """Return the largest body that Ray's dashboard accepts, through which `ray job submit` sends the package.

    Older Ray has the number in the dashboard's source, as a product.
    """
    if hasattr(constants, "DASHBOARD_CLIENT_MAX_SIZE"):
        return int(constants.DASHBOARD_CLIENT_MAX_SIZE)
    source = Path(constants.__file__).parents[1] / "dashboard" / "http_server_head.py"
    found = re.search(r"client_max_size=(\d+) \* (\d+)\*\*(\d+)", source.read_text("utf-8"))
    return int(found[1]) * int(found[2]) ** int(found[3]) if found else 0


def main(token: str, order: dict[str, Any]) -> None:
    """Print the result after the token, which other output cannot contain."""
    from ray._private import ray_constants as constants  # noqa: PLC0415
    from ray._private.runtime_env import packaging  # noqa: PLC0415

    root = Path(order["folder"]).absolute()
    defaults: list[str] = getattr(constants, "get_runtime_env_default_excludes", list)()
    travel = packaging._dir_travel  # noqa: SLF001 - there is no public accessor
    options: dict[str, Any] = {}
    if "include_gitignore" in inspect.signature(travel).parameters:
        options["include_gitignore"] = os.environ.get(constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1"
    package = Package(root, order["limit"])
    whole, failed = True, ""
    try:
        excludes = packaging._get_excludes(root, [*defaults, *order["excludes"]])  # noqa: SLF001
        travel(root, [excludes], package.count, **options)
    except LateError:
        whole = False
    except Exception as error:  # noqa: BLE001 - whatever would end Ray's own packing
        failed = f"{type(error).__name__}: {error}"[:300]
    limits = {"store": packaging.GCS_STORAGE_MAX_SIZE, "dashboard": dashboard_limit(constants)}
    answer = {**package.summary(), "limits": limits, "defaults": defaults, "whole": whole, "failed": failed}
    sys.stdout.write(f"\n{token}{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
