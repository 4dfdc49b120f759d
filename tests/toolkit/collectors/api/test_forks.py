"""Ways in which forks of verl test a release, tolerate a missing name, or build one."""

from __future__ import annotations

import pytest
from support.miniatures.source_trees import compare, verl, vllm

from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses

VLLM = {
    "__init__.py": "__version__ = '0.12.0'",
    "a.py": "class A: ...\ndef f(x): ...",
    "kinds.py": """
        import enum
        class Full(str, enum.Enum):
            ONE = "1"
        class Bare(enum.Enum):
            def put(self):
                self.one = 1
        class Made(Bare):
            TWO = enum.auto()
    """,
}
COMPAT = """
    from packaging import version
    import vllm
    def at_least(minimum, exactly=False):
        if exactly:
            return version.parse(vllm.__version__) == version.parse(minimum)
        return version.parse(vllm.__version__) >= version.parse(minimum)
    NEW = at_least("0.11.0")
"""
SHIM = "try:\n    from vllm.a import gone\nexcept ImportError:\n    pass"
LAZY = "def __getattr__(name):\n    return name"
SETS = "def found(part):\n    setattr(part, 'lost_by', vars(part))\nclass Held:\n    def __getattr__(self, name): ..."
HELD = {
    "utils__put": SETS,
    "utils__old": "from verl.utils.new import *",
    "utils__new": "def shown(): ...\ndef _kept(): ...",
}
TAKE = "\n    from vllm.a import gone"
NONE = "try:\n    from vllm.a import gone\nexcept ImportError:\n    gone = None\n"
PASS = "try:\n    from vllm.a import gone\nexcept ImportError:\n    pass\n"
SUPPRESSED = "from contextlib import suppress\nwith suppress(ImportError):\n    from vllm.a import gone\n"
GOT_NONE = "from vllm import a\ngone = getattr(a, 'gone', None)\n"
LATE = "\n            from vllm.a import gone"
PUT = "from vllm.a import A\ndef put(owner, name, function): setattr(owner, name, function)\n"
START = "class Server:\n    def launch(self):\n        "


def stops(tmp_path, server: str) -> bool:
    found = compare(tmp_path, server, VLLM, utils__compat=COMPAT, utils__shim=SHIM, utils__lazy=LAZY, **HELD)
    return any(use.breaks and use.paths and not use.when for use in found.uses) or any(
        file.paths and file.kind == "missing" for file in found.unread
    )


@pytest.mark.parametrize(
    ("server", "breaks"),
    [
        (f"import vllm\nif vllm.__version__ >= '0.11.0':{TAKE}", True),
        (f"import vllm\nif vllm.__version__ >= '0.9.0':{TAKE}", False),
        (f"import vllm\nif tuple(map(int, vllm.__version__.split('.')[:2])) >= (0, 11):{TAKE}", True),
        (f"import vllm\nif tuple(int(p) for p in vllm.__version__.split('.')[:2]) < (0, 11):{TAKE}", False),
        (
            f"from packaging.version import Version\nimport vllm\nif Version(vllm.__version__).minor < 12:{TAKE}",
            False,
        ),
        (
            f"from packaging.version import Version\nimport vllm\nif Version(vllm.__version__).release >= (0, 12):{TAKE}",
            True,
        ),
        (f"from verl.utils.compat import at_least\nif at_least('0.11'):{TAKE}", True),
        (f"from verl.utils.compat import at_least\nif at_least('0.11', exactly=True):{TAKE}", False),
        (f"from verl.utils.compat import NEW\nif not NEW:{TAKE}", False),
        (f"USE = False\nif USE:{TAKE}", False),
        ("from verl.utils.old import shown", False),
        ("from verl.utils.old import _kept", True),
        ("from verl.utils.old import lost", True),
        (f"{NONE}{START}gone(1)", True),
        (f"{NONE}{START}if gone is not None:\n            gone(1)", False),
        (f"{NONE}{START}gone.make()", True),
        (f"{NONE}{START}return gone and gone.make()", False),
        (f"{NONE}{START}return gone.__class__", False),
        (f"import inspect\n{NONE}{START}inspect.signature(gone)", True),
        (f"import inspect\n{NONE}{START}return gone and inspect.signature(gone)", False),
        (
            f"{NONE}{START}try:\n            gone.make()\n        except AttributeError:\n            pass",
            False,
        ),
        (f"{PASS}{START}gone(1)", True),
        (f"{PASS}{START}gone.make()", True),
        (f"{PASS}{START}try:\n            gone(1)\n        except NameError:\n            pass", False),
        (f"{PASS}if True:\n    gone = print\n{START}gone(1)", False),
        (f"{PASS}def put():\n    global gone\n    gone = print\n{START}gone(1)", False),
        (f"gone = print\n{PASS}{START}gone(1)", False),
        ("try:\n    from vllm.a import gone\n    KNOWN = [gone]\nexcept ImportError:\n    pass", False),
        (f"{SUPPRESSED}    KNOWN = [gone]", False),
        (f"from __future__ import annotations\n{PASS}def f(x: gone) -> gone: ...\nvalue: gone = 1", False),
        (
            f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:{TAKE}\ndef f(x: 'gone') -> 'gone': ...",
            False,
        ),
        (f"{PASS}HAS = 'gone' in globals()\n{START}return HAS and gone(1)", False),
        (f"{PASS}def f(gone):\n    return gone", False),
        (f"{PASS}{START}return [gone for gone in ()]", False),
        (f"{PASS}{START}del self.gone", False),
        (f"{SUPPRESSED}{START}gone(1)", True),
        (f"{SUPPRESSED}class Mine(gone): ...", True),
        (f"{PASS}{START}return [gone]", True),
        (f"{PASS}KNOWN = [gone]", True),
        (f"{NONE}class Mine(gone): ...", True),
        (f"{NONE}KNOWN = [gone]", False),
        (f"{NONE}class Mine(gone or object): ...", False),
        (f"gone = print\n{SUPPRESSED}{START}gone(1)", False),
        (f"{NONE}if gone is None:\n    def gone(x): ...\n{START}gone(1)", False),
        (f"{GOT_NONE}{START}gone(1)", True),
        (f"{GOT_NONE}{START}return gone", False),
        (f"{GOT_NONE}{START}if gone is not None:\n            gone(1)", False),
        (f"from vllm import a\ngone = getattr(a, 'gone', print)\n{START}gone(1)", False),
        (f"from vllm import a\nhere = getattr(a, 'f', None)\n{START}here(1)", False),
        ("from vllm.kinds import Full\nclass Mine(Full): ...", True),
        ("from vllm.kinds import Made\nclass Mine(Made): ...", True),
        ("from vllm.kinds import Bare\nclass Mine(Bare): ...", False),
        ("from verl.utils.put import lost", True),
        ("from verl.utils.put import found", False),
        (f"{PUT}{START}from vllm.a import gone", True),
        (f"{PUT}{START}def later():{LATE}\n        put(A, 'm', later)", False),
        (f"{PUT}{START}def later():{LATE}\n        A.m = later", False),
        (f"{PUT}{START}def later():{LATE}\n        put(A, 'm', later)\n        later()", True),
        ("__import__('vllm.gone')", True),
        ("module = __import__('vllm.a', fromlist=['gone'])\nmodule.gone", True),
        ("import importlib\nTOP = 'vllm'\nimportlib.import_module(f'{TOP}.gone')", True),
        ("import importlib\nmodule = importlib.import_module('vllm' + '.a')\nmodule.A", False),
        ("from vllm import a\ngetattr(a, 'go' + 'ne')", True),
        ("from verl.utils.compat import was_here", True),
        ("from verl.utils.shim import gone", True),
        ("from verl.utils.lazy import anything", False),
        ("try:\n    from verl.utils.compat import was_here\nexcept ImportError:\n    was_here = None", False),
    ],
)
def test_fork_is_judged_as_python_runs_it(tmp_path, server, breaks):
    assert stops(tmp_path, server) is breaks


@pytest.mark.parametrize(
    ("named", "breaks"),
    [
        ("'verl.utils.extension.Extension'", True),
        ("'verl.utils.extension.Other'", False),
        ("'Extension'", False),
    ],
)
def test_class_that_is_named_by_its_path_is_created(tmp_path, named, breaks):
    extension = "class Extension:\n    def __new__(cls):\n        from vllm.a import gone\nclass Other: ..."
    server = f"import vllm\nfrom verl.utils.extension import Other\n{START}return {{'worker_extension_cls': {named}}}"
    found = compare(tmp_path, server, VLLM, utils__extension=extension)
    assert any(use.breaks and use.paths and not use.when for use in found.uses) is breaks


@pytest.mark.parametrize(
    ("text", "python", "breaks"),
    [
        ("def f(x: gone): ...", "3.11.7", True),
        ("def f(x) -> list[gone]: ...", "3.13.0", True),
        ("class Mine:\n    def f(self, *, x: gone | None = None): ...", "3.10.13", True),
        ("def f(x: 'gone'): ...", "3.11.7", False),
        ("def f(x: gone): ...", "3.14.0", False),
        ("def f(x: gone): ...", "", False),
        ("def f():\n    x: gone = 1", "3.11.7", False),
    ],
)
def test_annotation_of_a_function_is_evaluated_up_to_python_3_13(tmp_path, text, python, breaks):
    for place, begin in enumerate(("", "from __future__ import annotations\n")):
        folder = tmp_path / str(place)
        pair = verl(folder, f"{begin}{PASS}{text}"), vllm(folder, VLLM)
        found = read_trees(VllmUses, *pair, python)
        assert isinstance(found, VllmUses)
        assert any(use.breaks for use in found.uses) is (breaks and not begin)
