"""Packed sources: shorter, but line for line the same code."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.cluster import packing
from verl_doctor.toolkit.cluster.node_parcel import parcel_for
from verl_doctor.toolkit.cluster.packing import Contents, compact, pack, packed_files, without_unused
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.probes import node, nvml
from verl_doctor.toolkit.probes.node import unpacked
from verl_doctor.toolkit.target import Options

_MOST = 300_000  # bytes; 297,000 when this was written


class _WithoutTexts(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not node.decorator_list:
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            code = [each for each in body if not (isinstance(each, ast.Expr) and _is_text(each.value))]
            if not code and body:
                code = [ast.Pass(lineno=body[0].lineno)]
            node.body = code  # type: ignore[attr-defined]
        return node


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def code(text: str) -> Any:
    """The code object, without docstrings, annotations and columns. It compares instructions, constants and lines."""
    tree = _WithoutTexts().visit(ast.parse(text))
    for each in ast.walk(tree):
        if hasattr(each, "lineno"):
            each.end_lineno, each.col_offset, each.end_col_offset = each.lineno, 0, 0
    return compile(tree, "module.py", "exec", dont_inherit=True)


def compacted(text: str) -> str:
    return compact(text, ast.parse(text))


TEXTS = [
    'def f():\n    """Doc\n    of two lines."""\n',
    'def f():\n    """Doc."""  # why\n    return "#"  # not a comment\n',
    'class A:\n    """Doc."""\n\n    x: int = 1\n    """An attribute\'s."""\n\n    # gone\n    y = 2  # gone\n',
    'def f(): "doc"\nx = 1; "text"\n',
    'def f():\n    "doc"; return 1\n',
    'text = """\n# a line of it   \n"""\nother = f"""{text}\n  # another   \n"""  # stays\n',
    'def f():\n    (\n        "doc"\n        " in parts"\n    )\n    return 1\n',
    'try:\n    "text"\nexcept ValueError:\n    "text"\nelse:\n    "text"\n',
    '# ä\nx = "ä"; y = "ü"  # ö\n"ß ä"\n',
    "x = [  # of\n    1,  # first\n]\n",
    "def _f(ä: 'gone', *b: gone[1], c: gone = 2, **d: gone) -> gone: return 'ü'; 'doc'\n",
    "def _f(\n    a: (int), b: list[\n        int],\n) -> (\n    int\n):  # gone\n    def g() -> 'gone': 'doc'\n",
    "@kept\ndef f(a: int) -> int:\n    lambda: 1\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_compacted_source_keeps_code_and_line_numbers(text: str) -> None:
    assert code(compacted(text)) == code(text)
    assert "gone" not in compacted(text)


def test_comments_and_docstrings_are_removed_except_a_stub_in_classes() -> None:
    text = '"""Module\'s."""\n\n# a comment\nclass A:\n    """Of\n    a class."""\n\n    x: int\n\n\ndef f():\n    """Of a function."""\n    return 1  # one\n'
    assert compacted(text) == '\n\n\nclass A:\n    "."\n\n\n    x: int\n\n\ndef f():\n    \n    return 1\n'
    assert compact(text, ast.parse(text), rules=True) == text.replace("# a comment", "").replace(
        "  # one", ""
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("def every_path(uses: VllmUses): ...\n", True),
        ("def _applies(launch: Launch): ...\n@check(applies=_applies)\ndef rule(): ...\n", True),
        ("@collector\ndef _made(launch: Launch): ...\n", True),
        ("def _called(launch: Launch): ...\nx = _called(1)\n", False),
        ("class A:\n    def method(self, launch: Launch): ...\n", False),
    ],
)
def test_annotations_that_may_name_facts_are_kept(text: str, kept: bool) -> None:
    assert (": Launch" in compacted(text) or ": VllmUses" in compacted(text)) is kept


@pytest.mark.slow
def test_every_file_of_a_parcel_keeps_code_and_line_numbers() -> None:
    session = open_session(Options(python=Path(sys.executable)))
    content = parcel_for(session, session.look()).content
    assert len(content) < _MOST
    files = unpacked(content)
    pure = packing._pure_files()
    top = Path(node.__file__).parents[2]
    compared = 0
    for name, text in files.items():
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        path = top / name.partition("/")[2] if name.startswith("verl_doctor/") else pure.get(module)
        if path is not None and module.partition(".")[0] not in packing._TRIMMED:
            assert code(text) == code(path.read_text("utf-8")), name
            compared += 1
    trimmed = [name for name in files if name.startswith(("packaging/", "pynvml."))]
    assert compared == len(files) - len(trimmed) - 1  # __main__


@pytest.mark.slow
def test_trimmed_packaging_gives_the_same_results(tmp_path: Path) -> None:
    session = open_session(Options(python=Path(sys.executable)))
    files = unpacked(parcel_for(session, session.look()).content)
    for name, text in files.items():
        if name.startswith("packaging/"):
            tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
            tmp_path.joinpath(name).write_text(text)
    program = (
        "import packaging, packaging.requirements, packaging.specifiers, packaging.utils, packaging.version as v\n"
        'r = packaging.requirements.Requirement(\'Torch[a]>=2.1,!=2.3; python_version >= "3.9" and extra == "x"\')\n'
        "print([str(r), r.marker.evaluate({'extra': 'x'}), r.marker.evaluate({'extra': ''}),\n"
        "    [each for each in ('2.0', '2.1+cu124', '2.3', '2.4rc1', '2.4') if r.specifier.contains(each)],\n"
        "    sorted(map(v.Version, ('1.0.post1', '1.0', '1.0a1', '1.0.dev2', '1!0'))), packaging.utils.canonicalize_name('A_b.C')])\n"
        "for wrong in ('a >>> 1', 'a; x == 1'):\n"
        "    try: packaging.requirements.Requirement(wrong)\n"
        "    except packaging.requirements.InvalidRequirement as error: print(error)\n"
        "print(packaging.__file__)\n"
    )

    def printed(path: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    here, there = printed(""), printed(str(tmp_path))
    assert there[-1] == str(tmp_path / "packaging" / "__init__.py") != here[-1]
    assert here[:-1] == there[:-1]


@pytest.mark.slow
def test_trimmed_nvml_bindings_keep_every_called_function(tmp_path: Path) -> None:
    whole = packing._pure_files()["pynvml"].read_text("utf-8")
    words = set(packing._WORD.findall(Path(nvml.__file__).read_text("utf-8")))
    small = without_unused(compacted(whole), words)
    (tmp_path / "pynvml.py").write_text(small)
    assert len(small.replace("\n", "")) < len(whole) / 5
    program = (
        "import ast, json, sys, pynvml\n"
        "print(json.dumps([pynvml.__file__, sorted(name for name in sys.stdin.read().split() if hasattr(pynvml, name)),\n"
        "    sorted(name for name in dir(pynvml) if name.startswith('NVMLError'))]))\n"
    )

    def loaded(path: str) -> list[Any]:
        run = subprocess.run(
            [sys.executable, "-c", program],
            input=" ".join(words),
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[Any] = json.loads(run.stdout)
        return found

    here, there = loaded(""), loaded(str(tmp_path))
    assert there[0] == str(tmp_path / "pynvml.py")
    assert here[0] != there[0]
    assert here[1:] == there[1:]
    assert "NVMLError_GpuIsLost" in there[2]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("def a(): return b()\ndef b(): return 1\ndef c(): return a()\n", "def a(): return b()\ndef b(): return 1\n\n"),
        ("A = 1\nB = A\nC = 2\n", "A = 1\nB = A\n\n"),
        ("C = 1\nstart = 'x'.startswith('C')\n", "C = 1\nstart = 'x'.startswith('C')\n"),
        ("@a\ndef c(): pass\ndef a(f): return f\n", "@a\ndef c(): pass\ndef a(f): return f\n"),
        ("C = 1; D = 2\n", "C = 1; D = 2\n"),
        ("__all__ = ['c']\ndef __dir__(): return __all__\ndef c(): pass\n", "\n\n\n"),
        ("import d\nimport e as f, g.h\nfrom i import (\n    j,\n    a,\n)\n", "\n\nfrom i import (\n    j,\n    a,\n)\n"),
        ("from __future__ import annotations\nfrom c import *\n", "from __future__ import annotations\nfrom c import *\n"),
    ],
)  # fmt: skip
def test_unreferenced_definitions_are_removed(text: str, left: str) -> None:
    assert without_unused(text, {"a", "B"}) == left


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"a.py": "x = 'ä€😀\\n'\n\n\tpass\0"},
        {"a.py": " ".join(f"word_{number} word_{number} word_{number}" for number in range(3000))},
    ],
    ids=["nothing", "not ASCII", "more words than codes"],
)
def test_unpacking_restores_packed_files(files: dict[str, str]) -> None:
    assert unpacked(packed_files(files)) == files


def test_parcel_is_cached_while_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored: dict[str, Any] = {}

    def section(name: str, make: Callable[[], Any]) -> Any:
        return stored[name] if name in stored else stored.setdefault(name, make())

    made: list[Contents] = []
    pure = tmp_path / "pure.py"
    pure.write_text("x = 1\n")
    monkeypatch.setattr(packing.kept_index, "section", section)
    monkeypatch.setattr(packing, "_pure_files", lambda: {"pure": pure})
    monkeypatch.setattr(packing, "sources", lambda contents: made.append(contents) or {"a.py": "x = 1\n"})
    contents = Contents("", frozenset())
    assert unpacked(pack(contents)) == unpacked(pack(contents)) == {"a.py": "x = 1\n"}
    assert len(made) == 1
    pure.write_text("x = 22\n")
    pack(contents)
    pack(Contents("", frozenset({"other"})))
    assert len(made) == 3
