"""Reading source trees: existing, missing and unresolved names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.miniatures.source_trees import write

from verl_doctor.toolkit.sources.python.answers import External, Missing, Present, Unresolved
from verl_doctor.toolkit.sources.python.classes import constructor
from verl_doctor.toolkit.sources.python.moved import definitions
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree, Unreadable, parse, parse_expression, read
from verl_doctor.toolkit.sources.python.symbols import Class, Function, Module


@pytest.fixture
def sources(tmp_path: Path):
    def make(**files: str) -> Sources:
        write(tmp_path / "pkg", {f"{name}.py": text for name, text in files.items()})
        (tmp_path / "pkg" / "native.cpython-311-x86_64-linux-gnu.so").touch()
        return Sources([SourceTree(tmp_path / "pkg", "pkg")])

    return make


def test_function_is_found_at_its_definition(sources):
    answer = sources(a="def f(x): ...").resolve("pkg.a.f")
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Function)


def test_unbound_name_is_missing(sources):
    answer = sources(a="x = 1").resolve("pkg.a.y")
    assert isinstance(answer, Missing)
    assert answer.what == "name"
    assert answer.read_from.endswith("a.py")


def test_module_without_a_file_is_missing(sources):
    answer = sources(a="").resolve("pkg.b")
    assert isinstance(answer, Missing)
    answer = sources(a="").import_module("pkg.b.c")
    assert isinstance(answer, Missing)
    assert answer.what == "module"


def test_compiled_module_exists_with_unknown_content(sources):
    assert isinstance(sources(a="").import_module("pkg.native"), Present)
    assert isinstance(sources(a="").import_name("pkg.native", "f"), Unresolved)


def test_name_that_looks_compiled_is_never_missing(sources):
    made = sources(a="")
    assert isinstance(made.import_module("pkg._C"), Unresolved)
    assert isinstance(made.import_name("pkg", "_C"), Unresolved)
    assert isinstance(made.import_module("pkg.api_pb2"), Unresolved)


@pytest.mark.parametrize("where", ["pkg", "pkg.a"])
def test_private_name_is_not_a_compiled_module(sources, where):
    assert isinstance(sources(a="").import_name(where, "_helper"), Missing)


@pytest.mark.parametrize(
    "text",
    [
        "from pkg.b import thing",
        "from .b import thing",
        "from . import b\nthing = b.thing",
        "from pkg.b import *",
        "import pkg.b as other\nthing = other.thing",
        "try:\n    from pkg.b import thing\nexcept ImportError:\n    raise",
        "if 1 > 0:\n    from pkg.b import thing",
        "with open('x') as f:\n    from pkg.b import thing",
        "for i in range(2):\n    from pkg.b import thing",
    ],
)
def test_reexport_resolves_to_the_definition(sources, text):
    answer = sources(a=text, b="class thing: ...").resolve("pkg.a.thing")
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Class)
    assert answer.definition.module == "pkg.b"


def test_dunder_all_limits_a_star_import(sources):
    made = sources(a="from pkg.b import *", b="__all__ = ['x']\nx = y = 1")
    assert isinstance(made.resolve("pkg.a.x"), Present)
    assert isinstance(made.resolve("pkg.a.y"), Missing)


def test_star_import_from_another_package_may_bind_anything(sources):
    assert isinstance(sources(a="from numpy import *").resolve("pkg.a.x"), Unresolved)


def test_name_imported_only_for_type_checkers_is_missing(sources):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.b import thing"
    assert isinstance(sources(a=text, b="thing = 1").resolve("pkg.a.thing"), Missing)


LAZY = """
TABLE = {"thing": ".b:thing", "other": "b"}
def __getattr__(name):
    if name in TABLE:
        return load(TABLE[name])
    raise AttributeError(name)
"""


def test_lazy_table_is_read_and_is_not_a_wildcard(sources):
    made = sources(__init__=LAZY, b="class thing: ...\nclass other: ...")
    for name in ("thing", "other"):
        answer = made.resolve(f"pkg.{name}")
        assert isinstance(answer, Present)
        assert isinstance(answer.definition, Class)
    assert isinstance(made.resolve("pkg.nothing"), Missing)


def test_computing_getattr_leaves_the_result_open(sources):
    made = sources(a="def __getattr__(name):\n    return find(name)")
    assert isinstance(made.resolve("pkg.a.x"), Unresolved)


@pytest.mark.parametrize(
    "text", ["globals()['x'] = 1", "globals().update(x=1)", "import sys\nsys.modules[__name__] = f()"]
)
def test_names_bound_at_run_time_leave_the_result_open(sources, text):
    assert isinstance(sources(a=text).resolve("pkg.a.y"), Unresolved)


def test_lazy_loader_binds_only_its_target(sources):
    made = sources(a='models = LazyLoader("models", globals(), "pkg.b")')
    assert isinstance(made.resolve("pkg.a.models"), Present)
    assert isinstance(made.resolve("pkg.a.y"), Missing)


def test_global_statement_binds_a_name(sources):
    assert isinstance(sources(a="def f():\n    global x\n    x = 1").resolve("pkg.a.x"), Present)


def test_circular_imports_end(sources):
    made = sources(a="from pkg.b import x", b="from pkg.a import x")
    assert isinstance(made.resolve("pkg.a.x"), Unresolved)


def test_object_from_another_package_is_external(sources):
    answer = sources(a="from torch import nn").resolve("pkg.a.nn.Module")
    assert answer == Present(External("torch.nn.Module"))


def test_members_are_inherited_from_other_files(sources):
    made = sources(
        a="from pkg.b import Base\nclass A(Base):\n    x: int = 0",
        b="class Base:\n    def f(self):\n        self.y = 1",
    )
    for name in ("x", "f", "y"):
        assert isinstance(made.resolve(f"pkg.a.A.{name}"), Present)
    assert isinstance(made.resolve("pkg.a.A.z"), Missing)


@pytest.mark.parametrize(
    "text",
    [
        "self.z = 1",
        "self.z: int = 1",
        "self.z += 1",
        "for self.z in range(2): ...",
        "with open('x') as self.z: ...",
        "self.y, (*self.z, x) = g()",
        "if g():\n            self.z = 1",
    ],
)
def test_attribute_stored_by_a_method_is_a_member(sources, text):
    made = sources(a=f"class A:\n    def f(self):\n        {text}")
    assert isinstance(made.resolve("pkg.a.A.z"), Present)


@pytest.mark.parametrize("text", ["return self.__dict__", "x = self.__dict__.copy()", "x = f'{vars(self)}'"])
def test_method_that_reads_its_dict_adds_no_members(sources, text):
    made = sources(a=f"class A:\n    def f(self):\n        {text}")
    assert isinstance(made.resolve("pkg.a.A.z"), Missing)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nclass A(torch.nn.Module): ...",
        "class A:\n    def __getattr__(self, name): ...",
        "class A:\n    def f(self):\n        setattr(self, g(), 1)",
        "class A:\n    def f(self, more):\n        self.__dict__.update(more)",
        "class A:\n    def f(self, more):\n        self.__dict__[more] = 1",
        "class A:\n    def f(self, more):\n        vars(self).update(more)",
        "class A:\n    def f(self, more):\n        held = self.__dict__",
        "@unheard_of\nclass A: ...",
        "class A(make()): ...",
        "class A:\n    if X:\n        y = 1",
    ],
)
def test_class_with_possible_dynamic_attributes_is_unresolved(sources, text):
    assert isinstance(sources(a=text).resolve("pkg.a.A.z"), Unresolved)


def parameters(made: Sources, name: str) -> list[str] | None:
    answer = made.resolve(name)
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Class)
    found = constructor(made, answer.definition)
    return (
        None
        if found is None
        else [parameter.name + "!" * parameter.required for parameter in found[0].parameters]
    )


def test_dataclass_accepts_its_own_and_inherited_fields(sources):
    made = sources(
        a="""
        from dataclasses import dataclass, field
        from typing import ClassVar
        from pkg.b import Base
        @dataclass
        class A(Base):
            y: int = 0
            z: ClassVar[int] = 1
            w: int = field(default=0, init=False)
        """,
        b="from dataclasses import dataclass\n@dataclass\nclass Base:\n    x: int",
    )
    assert parameters(made, "pkg.a.A") == ["x!", "y"]


DECORATOR = """
from typing import dataclass_transform
from pydantic.dataclasses import dataclass
@dataclass_transform()
def config(cls=None, **more):
    return dataclass(cls, config=dict(extra=%s))
"""


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int", False),
        ("from pydantic.dataclasses import dataclass\n@dataclass\nclass A:\n    x: int", True),
        (
            "from pydantic.dataclasses import dataclass\nfrom .b import same\n@same\n@dataclass\nclass A:\n    x: int",
            True,
        ),
        ("from .forbids import config\n@config\nclass A:\n    x: int", False),
        ("from .forbids import config\n@config(config={})\nclass A:\n    x: int", False),
        ("from .ignores import config\n@config\nclass A:\n    x: int", True),
    ],
)
def test_decorator_creates_a_dataclass_and_may_forbid_other_keywords(sources, text, others):
    made = sources(
        a=text, b="def same(cls): return cls", forbids=DECORATOR % "'forbid'", ignores=DECORATOR % "'ignore'"
    )
    assert parameters(made, "pkg.a.A") == ["x!"]
    found = constructor(made, made.resolve("pkg.a.A").definition)
    assert found[0].more_keywords is others
    assert not found[0].more_positional


def test_struct_accepts_its_fields(sources):
    assert parameters(
        sources(a="import msgspec\nclass A(msgspec.Struct, omit_defaults=True):\n    x: int = 0"), "pkg.a.A"
    ) == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "from pydantic import BaseModel\nclass A(BaseModel):\n    x: int",
        "from typing import TypedDict\nclass A(TypedDict):\n    x: int",
        "class A:\n    def __new__(cls, *args): ...",
        "class A(metaclass=M): ...",
        "class A:\n    @strange\n    def __init__(self, x): ...",
    ],
)
def test_unreadable_constructor_is_unknown(sources, text):
    assert parameters(sources(a=text), "pkg.a.A") is None


@pytest.mark.parametrize(
    "source",
    [
        b"def f(:",
        b"x = 1\x00",
        b"\xff\xfe\x00",
        b"# coding: nonsense\nx = 1",
        b"(" * 5000,
        b"x = '\\d'\xe9",
        b"-" * 100_000 + b"1",
    ],
)
def test_unparsable_source_is_unreadable_and_never_raises(source):
    found = parse(source, Path("x.py"))
    assert isinstance(found, Unreadable) or found.body is not None


def test_deeply_nested_expressions_cause_no_error(sources):
    deep = "x = " + "+".join(["a"] * 3000)
    answer = sources(a=deep).resolve("pkg.a.x")
    assert isinstance(answer, (Present, Unresolved))


@pytest.mark.parametrize("text", ["", "a b", "(", "x = 1", "\x00"])
def test_invalid_expression_gives_none(text):
    assert parse_expression(text) is None


def test_other_encodings_and_line_endings_are_read(tmp_path):
    for number, source in enumerate((b"\xef\xbb\xbfx = 1\r\n", b"# coding: latin-1\nx = '\xe9'\n", b"x = 1")):
        path = tmp_path / f"m{number}.py"
        path.write_bytes(source)
        content = read(path)
        assert isinstance(content, bytes)
        assert not isinstance(parse(content, path), Unreadable)


def test_unreadable_file_has_a_reason(tmp_path):
    assert isinstance(read(tmp_path / "none.py"), Unreadable)
    assert isinstance(read(tmp_path), Unreadable)


def test_modules_are_named_from_files_and_found_by_name(tmp_path):
    tree = SourceTree(write(tmp_path / "p" / "verl", {"a/b.py": ""}), "p.verl", alias="verl")
    assert tree.own_name("verl.a.b") == tree.own_name("p.verl.a.b") == "p.verl.a.b"
    assert tree.own_name("verlx.a") is None
    found = tree.locate("p.verl.a.b")
    assert found is not None
    assert tree.name_of(found.path) == "p.verl.a.b"
    assert tree.locate("p.verl.a.c") is None
    assert tree.locate("p.verl.a..b") is None


def test_definitions_are_found_by_text(tmp_path):
    tree = SourceTree(
        write(
            tmp_path / "pkg",
            {"a.py": "class X: ...", "b.py": "def y(): ...\nX = 1", "c.py": "  def y(): ...\nz == 1"},
        ),
        "pkg",
    )
    assert definitions(tree, ["X", "y", "z"]) == {"X": ("pkg.a", "pkg.b"), "y": ("pkg.b",), "z": ()}


def test_no_names_need_no_search(tmp_path):
    assert definitions(SourceTree(tmp_path / "none", "pkg"), []) == {}


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path, why: int = errno.EACCES) -> None:
    """Make a folder unlistable for everyone: root, who runs tests in a container, may read everything."""
    real = os.listdir

    def listdir(path: Path) -> list[str]:
        if folder in (path, *path.parents):
            raise OSError(why, os.strerror(why), str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)


@pytest.mark.parametrize("why", [errno.EACCES, errno.EIO, errno.ELOOP, errno.ESTALE])
@pytest.mark.parametrize("name", ["pkg.sub", "pkg.sub.a", "pkg.sub.a.b"])
def test_content_of_an_unreadable_folder_is_hidden_and_not_absent(tmp_path, monkeypatch, name, why):
    write(tmp_path / "pkg", {"sub/a.py": "x = 1"})
    refuse(monkeypatch, tmp_path / "pkg" / "sub", why)
    made = Sources([SourceTree(tmp_path / "pkg", "pkg")])
    file = made.file_of(name)
    assert file is not None
    assert (file.name, file.path, file.kind) == ("pkg.sub", tmp_path / "pkg" / "sub", "hidden")
    assert os.strerror(why) in file.why
    for answer in (made.import_module(name), made.import_name(name, "x"), made.import_name("pkg", "sub")):
        assert isinstance(answer, Unresolved)
        assert "cannot be read" in answer.reason
    assert isinstance(made.import_module("pkg.gone"), Missing)


def test_missing_folder_or_file_in_its_place_is_absent(tmp_path):
    tree = SourceTree(write(tmp_path / "pkg", {"a.py": ""}), "pkg")
    assert tree.locate("pkg.gone.b") is None
    assert tree.locate("pkg.a.b") is None
    assert tree.locate("pkg." + 300 * "x") is None


def test_unreadable_file_is_reported_with_the_result(sources):
    made = sources(a="from pkg.b import thing", b="def half(:", c="thing = 1")
    made.import_name("pkg.c", "thing")
    assert made.touched == set()
    made.import_name("pkg.a", "thing")
    assert made.touched == {"pkg.b"}
    assert made.unread["pkg.b"][1].line == 1


@pytest.mark.parametrize(
    ("source", "by"),
    [(b"x = (", "syntax"), (b"x = 1\0", "damage"), (b"-" * 100_000 + b"1", "reader")],
)
def test_obstacle_is_reported(source, by):
    found = parse(source, Path("x.py"))
    assert isinstance(found, Unreadable)
    assert found.by == by


def test_package_is_a_module(sources):
    answer = sources(a="").resolve("pkg")
    assert isinstance(answer, Present)
    assert isinstance(answer.definition, Module)


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    for name in ("pipe.py", "zero.py"):
        found = read(tmp_path / name)
        assert isinstance(found, Unreadable)
        assert found.by == "file"
