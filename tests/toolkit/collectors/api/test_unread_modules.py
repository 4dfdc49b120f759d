"""Modules of verl and vLLM that are missing or cannot be read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.small_engine import ENGINE, REGISTRY
from support.miniatures.source_trees import SERVER, compare, missing, verl, vllm, write

from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent, Unknown


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
