"""Modules imported by a program, read from its text."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.installed.reached import reached


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_imports_are_followed_through_packages_and_requirements(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "verl/__init__.py": "",
            "verl/trainer/__init__.py": "import json, random as r\n",
            "verl/trainer/main.py": "from ..utils import (\n    far\n)\nfrom lib import thing\ndef f():\n    import late\n",
            "verl/utils/__init__.py": "from .near import *\n",
            "verl/utils/near.py": "import queue\n",
            "lib/__init__.py": "",
            "lib-1.0.dist-info/METADATA": "Name: lib\nRequires-Dist: fast-tokens>=1\nRequires-Dist: extra-thing; extra == 'x'\n",
        },
    )
    names = ["json", "random", "queue", "lib", "late", "fast_tokens", "extra_thing", "test"]
    assert reached(names, "verl.trainer.main", [str(tmp_path)]) == {
        "json",
        "random",
        "queue",
        "lib",
        "fast_tokens",
    }
