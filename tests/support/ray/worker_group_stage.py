"""A stage on which verl's `single_controller`, out of a released wheel, runs in an environment that has Ray alone.

Its files are the released ones; what they import of the rest of verl, and torch, is stood in for.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

_STAND_INS = {
    "numpy.py": "",
    "verl/__init__.py": "",
    "verl/utils/__init__.py": "",
    "verl/plugin/__init__.py": "",
    "verl/protocol.py": (
        "_padding_size_key = 'padding'\n"
        "class BatchData: pass\n"
        "class DataProto: pass\n"
        "class DataProtoFuture: pass\n"
    ),
    "verl/utils/device.py": (
        "def get_visible_devices_keyword(): return 'CUDA_VISIBLE_DEVICES'\n"
        "def get_device_name(): return 'cuda'\n"
        "def get_torch_device(): raise NotImplementedError\n"
        "get_resource_name = lambda: 'GPU'\n"
    ),
    "verl/utils/ray_utils.py": "def ray_noset_visible_devices(): return False\nparallel_put = None\n",
    "verl/utils/transferqueue_utils.py": "def tqbridge(*_, **__): return lambda function: function\n",
    "verl/plugin/platform.py": (
        "class Platform:\n"
        "    device_name = 'cuda'\n"
        "    def ray_resource_name(self): return 'GPU'\n"
        "    def ray_resource_options(self, number): return {'num_gpus': number}\n"
        "def get_platform(): return Platform()\n"
    ),
}
_HELPERS = ("DynamicEnumMeta", "DynamicEnum", "temp_env_var")


def stage(folder: Path, verl: Path) -> Path:
    """Put the stage for the verl of this folder into another, and return that: it goes onto PYTHONPATH."""
    for name, text in _STAND_INS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for part in ("single_controller", "version"):
        shutil.copytree(verl / part, folder / "verl" / part)
    (folder / "verl/utils/py_functional.py").write_text(_definitions(verl / "utils/py_functional.py"))
    return folder


def _definitions(path: Path) -> str:
    """Some definitions of a file, without its imports."""
    source = path.read_text()
    nodes = [node for node in ast.parse(source).body if getattr(node, "name", "") in _HELPERS]
    segments = [
        "\n".join(
            source.splitlines()[
                min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 : node.end_lineno
            ]
        )  # type: ignore[attr-defined]
        for node in nodes
    ]
    head = "import importlib\nimport os\nfrom contextlib import contextmanager\nfrom typing import *\n"
    return head + "\n\n".join(segments) + "\n"
