"""Effects of a function on dictionaries and the environment, followed without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.follow import Arrived, Follow
from verl_doctor.toolkit.sources.python.follow_values import SOME_TEXT, Function, Table
from verl_doctor.toolkit.sources.python.source import SourceTree


def tree(folder: Path, **modules: str) -> SourceTree:
    """A package `job` of these modules; a name with two underscores lies in a folder."""
    for name, text in {"__init__": "", **modules}.items():
        path = folder / "job" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(dedent(text))
    return SourceTree(folder / "job", "job")


def called(text: str, folder: Path, environ: Mapping[str, Any] | None = None, **modules: str) -> Any:
    """Result of `f()` in a module with this text."""
    table = Table(environ)
    follow = Follow(tree(folder, main=text, **modules), table, lambda *_: UNCLEAR)
    module = follow.module("job.main")
    assert module is not None
    return follow.call(module.names["f"])


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("return {'a': '1', **{'b': '2'}}", {"a": "1", "b": "2"}),
        ("d = {'a': 1, 'b': 2}\n    for k in list(d.keys()):\n        if k == 'a': d.pop(k)\n    return d", {"b": 2}),
        ("d = {}\n    for k in ('x', 'y'):\n        if k == 'y': continue\n        d[k] = k\n    return d", {"x": "x"}),
        ("d = {}\n    d.setdefault('e', {})['f'] = '1'\n    return d", {"e": {"f": "1"}}),
        ("d = {'a': 1}\n    e = d.copy()\n    e['a'] = 2\n    return d", {"a": 1}),
        ("d = {'a': 1}\n    d.update({'b': 2}, c=3)\n    del d['a']\n    return d", {"b": 2, "c": 3}),
        ("return {k: '1' for k in ['a', 'b'] if k != 'b'}", {"a": "1"}),
        ("return [x for x in ['a'] + ['b']]", ["a", "b"]),
        ("return f'{1 + 1}-{\"a\".upper()}'", "2-A"),
        ("major, _ = unknown()\n    return (major or 0) >= 10 and 'a' == 'b'", False),
        ("return unknown() or 'x'", UNCLEAR),
        ("return isinstance('a', str), isinstance('a', (int, list)), isinstance(unknown(), str)", [True, False, UNCLEAR]),
        ("import json\n    return json.loads('{\"a\": {\"b\": 1}}').get('a', {}).get('c', 7)", 7),
        ("if unknown():\n        return 1\n    return 1", 1),
        ("if unknown():\n        return 1\n    return 2", UNCLEAR),
        ("while unknown():\n        x = 1\n    return 'end'", "end"),
        ("return dict({'a': 1}, b=2)", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_known_values_are_computed(body: str, answer: Any, tmp_path: Path) -> None:
    assert called(f"def f():\n    {body}\n", tmp_path) == answer


@pytest.mark.parametrize(
    "change", ["d['a'] = '2'", "d.pop('a')", "d.update({'a': '2'})", "del d['a']", "d = {'a': '2'}"]
)
def test_condition_with_unknown_outcome_makes_its_assignments_unknown(change: str, tmp_path: Path) -> None:
    text = f"def f():\n    d = {{'a': '1', 'b': '1'}}\n    if unknown():\n        {change}\n    return d\n"
    found = called(text, tmp_path)
    assert found["a"] is UNCLEAR
    assert found.get("b") in ("1", UNCLEAR)


def test_value_created_under_an_unclear_condition_is_clear(tmp_path: Path) -> None:
    text = """
        def inner():
            d = {}
            d["a"] = "1"
            return d

        def f():
            if unknown():
                return inner()
            return {"a": "1"}
        """
    assert called(text, tmp_path)["a"] == "1"


def test_unknown_entries_leave_a_dictionary_open(tmp_path: Path) -> None:
    found = called("def f():\n    return {'a': '1', **unknown()}\n", tmp_path)
    assert (dict(found), found.open) == ({"a": "1"}, True)


def test_environment_is_read_and_changed(tmp_path: Path) -> None:
    text = """
        import os

        def f():
            os.environ["MADE"] = os.environ.get("GIVEN", "0")
            os.environ.setdefault("GIVEN", "other")
            return os.getenv("MADE"), os.environ["GIVEN"], "NONE" in os.environ
        """
    assert called(text, tmp_path, {"GIVEN": "1"}) == ["1", "1", False]


def test_hidden_text_is_known_to_be_set(tmp_path: Path) -> None:
    text = "import os\n\ndef f():\n    x = os.environ.get('SECRET')\n    return x is not None, x == '1'\n"
    assert called(text, tmp_path, {"SECRET": SOME_TEXT}) == [True, UNCLEAR]


def test_names_are_resolved_in_other_modules(tmp_path: Path) -> None:
    text = "from job.values import A\nfrom job import values\n\ndef f():\n    return A, values.B['c']\n"
    assert called(text, tmp_path, values="A = 'a'\nB = {'c': A + 'd'}\n") == ["a", "ad"]


def test_inherited_methods_are_followed(tmp_path: Path) -> None:
    text = """
        class Base:
            def give(self):
                return {"a": "1"}

        class Below(Base):
            def give(self):
                return {**super().give(), "b": self.name()}

            def name(self):
                return "2"

        def f():
            return Below().give()
        """
    assert called(text, tmp_path) == {"a": "1", "b": "2"}


def test_each_entry_records_the_line_that_wrote_it(tmp_path: Path) -> None:
    found = called(
        "def f():\n    d = {\n        'a': '1',\n    }\n    d['b'] = '2'\n    return d.copy()\n", tmp_path
    )
    assert {name: line for name, (_, line) in found.places.items()} == {"a": 3, "b": 5}


def test_program_is_followed_until_a_hook_stops_it(tmp_path: Path) -> None:
    text = """
        import ray

        @hydra.main()
        def main(config):
            ray.init(name=config.name)

        if __name__ == "__main__":
            main()
        """
    seen = []

    def hook(name: str, _: list[Any], words: Mapping[str, Any], place: tuple[str, int]) -> Any:
        if name == "ray.init":
            seen.append((words["name"], place[1]))
            raise Arrived
        return UNCLEAR

    sources = tree(tmp_path, main=text)
    follow = Follow(sources, Table(), hook, argument=Table({"name": "x"}))
    with pytest.raises(Arrived):
        follow.program(sources.folder / "main.py", "job.main")
    assert seen == [("x", 6)]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return f()\n",
        "def f():\n    x = []\n    for a in [1, 2, 3]:\n        for b in [1, 2, 3]:\n            x = [*x, f()]\n    return x\n",
        "class A(A):\n    pass\n\ndef f():\n    return A().g()\n",
        "from job.other import f\n",
        "import job.main\n\ndef f():\n    return job.main.f.g.h\n",
        "def f():\n    return " + "(" * 150 + "1" + ")" * 150 + "\n",
        "def f(*a, b=1, **c):\n    global x\n    x = lambda: a\n    return x()\n",
        "def f():\n    try:\n        raise ValueError\n    except ValueError:\n        return 1\n    finally:\n        pass\n",
        "async def f():\n    async with a as b:\n        async for c in d:\n            yield c\n",
        "def f():\n    match 1:\n        case 1:\n            return 1\n",
        "def f():\n    x: int\n    x += 1\n    return x[0:1] if x else -x\n",
    ],
)
def test_odd_code_causes_no_error(text: str, tmp_path: Path) -> None:
    follow = Follow(tree(tmp_path, main=text, other="from job.main import f\n"), Table(), lambda *_: UNCLEAR)
    module = follow.module("job.main")
    assert module is not None
    function = module.names["f"]
    if isinstance(function, Function):
        follow.call(function)


def test_invalid_python_is_not_a_module(tmp_path: Path) -> None:
    assert Follow(tree(tmp_path, main="def"), Table(), lambda *_: UNCLEAR).module("job.main") is None
