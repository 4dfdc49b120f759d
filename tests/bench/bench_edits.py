"""Small edits of real trees of verl and vLLM: what the doctor calls an error, beside what importing and calling really does.

    python tests/bench/bench_edits.py PYTHON [--pair VERL VLLM] [--executed FILE] [--count 300] [--seed 1] [--results FILE] [--only WORDS]

PYTHON is the interpreter of an environment with verl, vLLM and torch, which stays as it is: both trees are copied, and each edit is
made in the copies and taken back. --pair names two unpacked wheels to edit instead of the environment's own packages. An edit renames,
deletes, moves, copies, guards, wraps, aliases, extends or loads lazily what verl takes from vLLM or from itself, changes a signature
or a default, or compares vLLM's version in one of the ways of forks. What each kind must come to is fixed beforehand, where it does
not depend on the place; where Python disagrees with that, the edit is listed, since then the truth of this bench is in doubt.

The truth: the modules of the rollout are imported, then each use of vLLM at a line that a real step of training has run is
evaluated, and each call bound to the signature of what it calls. FILE has these lines, `verl/file.py:12,13` for a file. The one that
lies here is of a rehearsal of verl 0.9.1 (`smoke --cpu`) that came to its end, with a mark before each statement of verl's functions.
For another release, the lines that it shares with that one count. A result is kept in the file of results, so that a run that was
stopped goes on. Exit code 1 for a false error, or for less than nine tenths of the breaks.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import json
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from truth import server

from verl_doctor.toolkit.collectors.api import trees
from verl_doctor.toolkit.collectors.api.job_entries import rollout_entries
from verl_doctor.toolkit.collectors.api.job_settings import defaults_of
from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python import resolve, source
from verl_doctor.toolkit.sources.python.source import SourceTree, parse
from verl_doctor.toolkit.sources.python.summary import absolute

EXECUTED = Path(__file__).with_name("executed.txt")
_FOUND = 0.9  # of the breaks, at least
_NEW = "new_of_fork"

Result = tuple[str, str, str, str, str]
"""Its kind, the edit, what Python raised, what the doctor reported, and whether Python disagrees with what was fixed beforehand."""


@dataclass(frozen=True)
class Take:
    """A name that a module of verl imports at its margin, alone on its statement: `from module import name`, known as `bound`."""

    file: Path
    node: ast.ImportFrom
    module: str
    name: str
    bound: str


@dataclass(frozen=True)
class Call:
    """A call of something of vLLM at a line that is run: of a `name` that a module has, or of a `method` of that."""

    file: Path
    node: ast.Call
    module: str
    name: str
    method: str = ""
    within: str = ""


@dataclass(frozen=True)
class Edit:
    """One edit: its kind, what it is made at, the new texts of files (None: no file), and what is to be tried beside all else."""

    kind: str
    place: str
    texts: dict[Path, str | None]
    probes: tuple[dict[str, Any], ...] = ()
    breaks: bool | None = None
    """What it must come to; None where that depends on the place."""

    @property
    def key(self) -> str:
        return f"{self.kind} | {self.place}"


# What becomes of `from {m} import {n} as {b}`: the text that stands there instead. {x} is the name, right or wrong.
TAKEN = {
    "plain": "from {m} import {x} as {b}",
    "module": "from {m}{suffix} import {n} as {b}",
    "guard": "try:\n    from {m} import {x} as {b}\nexcept ImportError:\n    {b} = None",
    "swallow": "try:\n    from {m} import {x} as {b}\nexcept ImportError:\n    pass",
    "narrow guard": "try:\n    from {m} import {x} as {b}\nexcept ModuleNotFoundError:\n    {b} = None",
    "suppress": "import contextlib\nwith contextlib.suppress(ImportError):\n    from {m} import {x} as {b}",
    "fallback": "try:\n    from {m} import {x} as {b}\nexcept ImportError:\n    from {m} import {n} as {b}",
    "alias": "import {m} as _module_of_fork\n{b} = _module_of_fork.{x}",
    "getattr": "import {m} as _module_of_fork\n{b} = getattr(_module_of_fork, '{x}')",
    "getattr with a default": "import {m} as _module_of_fork\n{b} = getattr(_module_of_fork, '{x}', None)",
    "lazy": "def _take_of_fork():\n    from {m} import {x}\n    return {x}\n{b} = _take_of_fork()",
    "__import__": "{b} = __import__('{m}', fromlist=['{x}']).{x}",
    "import_module": "import importlib\n{b} = getattr(importlib.import_module('{m}'), '{x}')",
    "constructed": "import importlib\n_top_of_fork = 'vllm'\n{b} = importlib.import_module(f'{{_top_of_fork}}.{rest}').{x}",
    "subclass": "from {m} import {x} as _base_of_fork\nclass {b}(_base_of_fork):\n    pass",
    "wrap": "import functools\nfrom {m} import {x} as _inner_of_fork\n@functools.wraps(_inner_of_fork)\ndef {b}(*a, **k):\n    return _inner_of_fork(*a, **k)",
    "text version": "import vllm\nif vllm.__version__ >= '0.{limit}':\n    from {m} import {n} as {b}\nelse:\n    from {m} import {x} as {b}",
    "tuple version": "import vllm\nif tuple(int(p) for p in vllm.__version__.split('.')[:2]) >= (0, {limit}):\n    from {m} import {n} as {b}\nelse:\n    from {m} import {x} as {b}",
    "parsed version": "import vllm\nfrom packaging import version\nif version.parse(vllm.__version__) >= version.parse('0.{limit}.0'):\n    from {m} import {n} as {b}\nelse:\n    from {m} import {x} as {b}",
    "own helper": "from verl.helper_of_fork import at_least\nif at_least('0.{limit}'):\n    from {m} import {n} as {b}\nelse:\n    from {m} import {x} as {b}",
    "own shim": "from verl.shim_of_fork import {b}",
}
"""Each is made twice: with a name that is there and with one that is not (for versions: a limit that is reached, or not)."""

# These break only where what was not found is used; all others break with a wrong name, and `fallback` never does.
_BY_USE = {"guard", "swallow", "suppress", "getattr with a default"}

_HELPER = "import vllm\nfrom packaging import version\ndef at_least(minimum):\n    return version.parse(vllm.__version__) >= version.parse(minimum)\n"
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _linked(there: str, here: str) -> None:
    Path(here).symlink_to(there)


def _version(packages: Path, name: str) -> str:
    """The version that a package's metadata has."""
    found = next(packages.glob(f"{name}[-_]*.dist-info/METADATA"))
    return re.findall(r"(?m)^Version: (.*)$", found.read_text("utf-8"))[0]


class Trees:
    """Copies of both trees, with what is edited in them."""

    def __init__(self, verl: Path, vllm: Path, home: Path) -> None:
        self.verl, self.vllm = home / "own" / "verl", home / "library" / "vllm"
        self.unedited = vllm
        shutil.copytree(verl / "verl", self.verl)
        # Links but for what is edited: a copy of vLLM would be read from the disk anew.
        shutil.copytree(vllm / "vllm", self.vllm, copy_function=_linked)
        self.own = Tree(str(self.verl), "verl", _version(verl, "verl"), "--verl")
        self.library = Tree(str(self.vllm), "vllm", _version(vllm, "vllm"), "--vllm")

    def paths(self, *, library: bool) -> list[str]:
        return [str(self.verl.parent), str(self.vllm.parent if library else self.unedited)]

    def edited(self, edit: Edit) -> Iterator[None]:
        """Make an edit, and take it back."""
        before = {
            path: (path.readlink() if path.is_symlink() else path.read_bytes() if path.exists() else None)
            for path in edit.texts
        }
        for path, text in edit.texts.items():
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text, "utf-8")
        yield
        for path, old in before.items():
            path.unlink(missing_ok=True)
            if isinstance(old, Path):
                path.symlink_to(old)
            elif old is not None:
                path.write_bytes(old)


class Oracle:
    """One server process with some packages loaded."""

    def __init__(self, python: Path, home: Path, loaded: Iterable[str], path: Path) -> None:
        self.process = server(python, "real_edits", home)
        self._send({"path": [str(path)], "modules": list(loaded)})
        if self._line() != "ready\n":
            raise SystemExit(f"{python} cannot run the edits: see {home}/real_edits.log")

    def ask(self, **request: Any) -> dict[str, Any]:
        """What a request answers."""
        self.begin(**request)
        return self.answer()

    def begin(self, **request: Any) -> None:
        """Have the server work on a request while the doctor reads."""
        self._send(request)

    def answer(self) -> dict[str, Any]:
        """The answer to what was begun."""
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _send(self, what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# --- what may be edited


def takes_in(file: Path, text: str, top: str) -> Iterator[Take]:
    """The imports of one name of a package at the margin of a module."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and not node.level and f"{node.module}.".startswith(f"{top}."):
            for alias in node.names:
                if alias.name != "*":
                    yield Take(file, node, node.module or "", alias.name, alias.asname or alias.name)


def run(body: Iterable[ast.stmt], lines: set[int]) -> Iterator[ast.AST]:
    """The statements of a function that begin at lines which are run, and what the heads of its blocks evaluate."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.If() | ast.While():
                heads: list[ast.AST] = [node.test]
            case ast.For() | ast.AsyncFor():
                heads = [node.iter]
            case ast.With() | ast.AsyncWith():
                heads = [item.context_expr for item in node.items]
            case ast.Try() | ast.Match():
                heads = []
            case _:
                heads = [node]
        yield from heads if node.lineno in lines else ()
        if heads != [node]:
            parts = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
            parts += [inner.body for inner in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]]
            for part in parts:
                yield from run(part, lines)


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement that are evaluated in any case."""
    if isinstance(
        node,
        (
            *_DEFINED,
            ast.Lambda,
            ast.BoolOp,
            ast.IfExp,
            ast.ListComp,
            ast.SetComp,
            ast.DictComp,
            ast.GeneratorExp,
            ast.Raise,
        ),
    ):
        return
    if isinstance(node, (ast.Call, ast.Attribute, ast.Name)):
        yield node
    # Python does not evaluate the annotation of a local variable.
    unread = node.annotation if isinstance(node, ast.AnnAssign) else None
    for child in ast.iter_child_nodes(node):
        if child is not unread:
            yield from evaluated(child)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a module."""
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def probes_in(
    file: Path, module: str, text: str, lines: set[int]
) -> Iterator[tuple[dict[str, Any], ast.AST]]:
    """What is used of vLLM at these lines of functions, each with its node."""
    tree = ast.parse(text)
    margin = {take.bound: take for take in takes_in(file, text, "vllm")}
    for function in functions(tree):
        name, statements = function.name, list(run(function.body, lines))
        inner = {
            alias.asname or alias.name: f"from {node.module} import {alias.name}"
            + (f" as {alias.asname}" if alias.asname else "")
            for node in statements
            if isinstance(node, ast.ImportFrom) and not node.level and f"{node.module}.".startswith("vllm.")
            for alias in node.names
        }
        local = {
            part.id
            for part in ast.walk(function)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        local |= {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        for bound, statement in inner.items():
            yield (
                {"key": f"{module}:{name}:{bound}", "module": module, "imports": [statement], "of": bound},
                function,
            )
        for statement in statements:
            for node in evaluated(statement):
                head = ast.unparse(node.func if isinstance(node, ast.Call) else node)
                root = head.partition(".")[0]
                if (
                    not re.fullmatch(r"[\w.]+", head)
                    or root in local
                    or (root not in margin and root not in inner)
                ):
                    continue
                probe = {
                    "key": f"{module}:{name}:{node.lineno - function.lineno}:{head}",
                    "module": module,
                    "of": head,
                }
                probe["imports"] = [inner[root]] if root in inner else []
                if isinstance(node, ast.Call):
                    plain = not any(isinstance(part, ast.Starred) for part in node.args) and all(
                        word.arg for word in node.keywords
                    )
                    probe["called"] = True
                    if plain:
                        probe |= {
                            "positional": len(node.args),
                            "keywords": [word.arg for word in node.keywords],
                            "key": probe["key"] + "()",
                        }
                yield probe, node


def spliced(text: str, node: ast.stmt | ast.expr, new: str) -> str:
    """The text with new lines in place of a statement."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None
    return "".join([*lines[: node.lineno - 1], new + "\n", *lines[node.end_lineno :]])


def retaken(take: Take, way: str, *, wrong: bool, version: str, top: Path) -> Edit:
    """Another way of taking one name; the others of its statement are taken as before."""
    text = take.file.read_text("utf-8")
    minor = int(version.split(".")[1])
    words = {
        "m": take.module, "n": take.name, "b": take.bound, "x": _NEW if wrong else take.name, "rest": take.module.partition(".")[2],
        "suffix": "_moved" if wrong else "", "limit": minor + 3 if wrong else minor - 3,
    }  # fmt: skip
    if "version" in way or way == "own helper":
        words["x"] = _NEW
    others = [alias for alias in take.node.names if (alias.asname or alias.name) != take.bound]
    rest = [ast.unparse(ast.ImportFrom(take.node.module, others, 0))] if others else []
    texts: dict[Path, str | None] = {
        take.file: spliced(text, take.node, "\n".join([TAKEN[way].format(**words), *rest]))
    }
    if way == "own helper":
        texts[top / "helper_of_fork.py"] = _HELPER
    if way == "own shim":
        texts[top / "shim_of_fork.py"] = TAKEN["swallow"].format(**words) + "\n"
    breaks = None if way == "subclass" or (wrong and way in _BY_USE) else wrong and way != "fallback"
    place = f"{take.file.name} {take.module}:{take.name}"
    return Edit(f"take: {way}{', wrong' if wrong else ''}", place, texts, breaks=breaks)


MOVES = ("moved", "moved with its importers", "moved with a module left behind", "moved and named again")


def moved(sites: Sites, take: Take, way: str) -> Edit | None:
    """A module of verl under another name."""
    file = sites.file_of(take.module)
    if file is None or file.name == "__init__.py":
        return None
    new = f"{take.module}_of_fork"
    texts: dict[Path, str | None] = {
        file: None,
        file.with_name(f"{file.stem}_of_fork.py"): file.read_text("utf-8"),
    }
    if way == "moved with its importers":
        old = re.compile(rf"\b{re.escape(take.module)}\b")
        package, _, name = take.module.rpartition(".")
        for path in sites.trees.verl.rglob("*.py"):
            text = path.read_text("utf-8")
            if path != file and (name in text):
                after = old.sub(new, text)
                after = re.sub(
                    rf"(?m)^(\s*from (?:{re.escape(package)}|\.+) import (?:.*, )?){name}\b",
                    rf"\1{name}_of_fork as {name}",
                    after,
                )
                after = re.sub(rf"(?m)^(\s*from \.+){name}\b", rf"\1{name}_of_fork", after)
                if after != text:
                    texts[path] = after
    if way == "moved with a module left behind":
        texts[file] = f"from {new} import *\nfrom {new} import {take.name}\n"
    if way == "moved and named again":
        texts[file] = (
            f"import sys\nfrom {new.rpartition('.')[0]} import {new.rpartition('.')[2]} as _moved_by_fork\nsys.modules[__name__] = _moved_by_fork\n"
        )
    return Edit(
        f"module: {way}", f"{file.name} {take.module}", texts, breaks=True if way == "moved" else None
    )


COPIES = ("copied", "copied with a name that is gone", "copied with a function that is gone")


def copied(sites: Sites, take: Take, way: str) -> Edit | None:
    """A copy of a module of vLLM in verl, from which a name is taken."""
    file = sites.home(take.module, take.name)
    if file is None or file.name == "__init__.py":
        return None
    text, home = (
        file.read_text("utf-8"),
        ".".join(file.relative_to(sites.trees.vllm.parent).with_suffix("").parts),
    )
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            return None
    own = "class " if re.search(rf"(?m)^class {take.name}\b", text) else "def "
    if way == "copied with a name that is gone":
        text = re.sub(
            rf"(?m)^(?=(?:async )?(?:@|{own}){take.name}\b)", f"from {home} import {_NEW}\n", text, count=1
        )
        if _NEW not in text:
            return None
    if way == "copied with a function that is gone":
        text = re.sub(rf"\b{take.name}\b", f"{take.name}_of_fork", text)
    others = [alias for alias in take.node.names if (alias.asname or alias.name) != take.bound]
    rest = [ast.unparse(ast.ImportFrom(take.node.module, others, 0))] if others else []
    taken = f"from verl.copy_of_fork import {take.name} as {take.bound}"
    texts: dict[Path, str | None] = {
        take.file: spliced(take.file.read_text("utf-8"), take.node, "\n".join([taken, *rest])),
        sites.trees.verl / "copy_of_fork.py": text,
    }
    return Edit(
        f"vendored: {way}",
        f"{take.file.name} {take.module}:{take.name}",
        texts,
        breaks=way != "copied" or None,
    )


# What becomes of a definition of {n}: what it is called then, and what is added.
DEFINED: dict[str, tuple[bool, str]] = {
    "deleted": (False, ""),
    "renamed": (True, ""),
    "renamed with an alias": (True, "{n} = {x}"),
    "renamed, lazily there": (
        True,
        "def __getattr__(name):\n    if name == '{n}':\n        return {x}\n    raise AttributeError(name)",
    ),
    "renamed, wrapped": (True, "def {n}(*a, **k):\n    return {x}(*a, **k)"),
    "renamed, extended": (True, "class {n}({x}):\n    pass"),
}


def redefined(file: Path, name: str, way: str, place: str) -> Edit | None:
    """Something else in place of the definition of a name in its module."""
    text = file.read_text("utf-8")
    node = next(
        (node for node in ast.parse(text).body if isinstance(node, _DEFINED) and node.name == name), None
    )
    if node is None or (way.endswith("wrapped") and isinstance(node, ast.ClassDef)):
        return None
    if way.endswith("extended") and not isinstance(node, ast.ClassDef):
        return None
    renames, added = DEFINED[way]
    words = {"n": name, "x": f"{name}_of_fork"}
    lines = text.splitlines(keepends=True)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    if renames:  # in the whole file, so that only those who import it from there are left
        lines = [re.sub(rf"\b{name}\b", words["x"], line) for line in lines]
        lines.append("\n" + added.format(**words) + "\n")
    else:
        lines[first : node.end_lineno] = ["pass\n"]
    return Edit(
        f"{place}: {way}",
        f"{file.name} {name}",
        {file: "".join(lines)},
        breaks=way in {"deleted", "renamed"} or None,
    )


SIGNATURES = (
    "parameter renamed",
    "parameter required",
    "parameter optional",
    "default changed",
    "keyword added",
    "argument added",
)


def resigned(call: Call, file: Path | None, way: str) -> Edit | None:
    """Another signature of what verl calls, or another call."""
    place = f"{call.file.name}:{call.node.lineno} {call.module}:{call.name}.{call.method}".rstrip(".")
    if way in ("keyword added", "argument added"):
        text = call.file.read_text("utf-8")
        new = ast.parse(ast.unparse(call.node), mode="eval").body
        assert isinstance(new, ast.Call)
        if way == "keyword added":
            new.keywords.append(ast.keyword("added_by_fork", ast.Constant(1)))
        else:
            new.args += [ast.Constant(None)] * 40
        lines = text.encode().splitlines(keepends=True)
        assert call.node.end_lineno is not None
        assert call.node.end_col_offset is not None
        before = b"".join(lines[: call.node.lineno - 1]) + lines[call.node.lineno - 1][: call.node.col_offset]
        after = lines[call.node.end_lineno - 1][call.node.end_col_offset :] + b"".join(
            lines[call.node.end_lineno :]
        )
        edited = before + ast.unparse(new).encode() + after
        probe = {"key": "the edited call", "module": call.within, "imports": [], "of": ast.unparse(new.func)}
        probe |= {
            "called": True,
            "positional": len(new.args),
            "keywords": [word.arg for word in new.keywords],
        }
        return Edit(f"call: {way}", place, {call.file: edited.decode()}, (probe,))
    if file is None:
        return None
    text = file.read_text("utf-8")
    found = next(
        (node for node in ast.parse(text).body if isinstance(node, _DEFINED) and node.name == call.name), None
    )
    function = None if call.method else found
    if isinstance(found, ast.ClassDef):
        function = next(
            (
                node
                for node in found.body
                if isinstance(node, ast.FunctionDef) and node.name == (call.method or "__init__")
            ),
            None,
        )
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    lines = text.splitlines(keepends=True)
    head, body = function.lineno - 1, function.body[0].lineno - 1
    if way == "parameter renamed":
        names = [
            word.arg
            for word in call.node.keywords
            if word.arg in {argument.arg for argument in function.args.args + function.args.kwonlyargs}
        ]
        if not names:
            return None
        old = re.compile(rf"\b{names[0]}\b")
        lines[head : function.end_lineno] = [
            old.sub(f"{names[0]}_of_fork", line) for line in lines[head : function.end_lineno]
        ]
    elif way == "default changed":
        if not function.args.defaults:
            return None
        default = function.args.defaults[-1]
        if default.end_lineno != default.lineno:
            return None
        line = lines[default.lineno - 1].encode()
        lines[default.lineno - 1] = (
            line[: default.col_offset] + b"None" + line[default.end_col_offset :]
        ).decode()
    else:
        added = ast.parse(f"def f(*, added_by_fork{'=1' if way == 'parameter optional' else ''}): ...").body[
            0
        ]
        assert isinstance(added, ast.FunctionDef)
        function.args.kwonlyargs += added.args.kwonlyargs
        function.args.kw_defaults += added.args.kw_defaults
        function.body, function.decorator_list = [ast.Pass()], []
        signature = ast.unparse(function).rpartition("\n")[0]
        lines[head:body] = [" " * function.col_offset + signature + "\n"]
    quiet = way in {"parameter optional", "default changed"}
    return Edit(f"call: {way}", place, {file: "".join(lines)}, breaks=False if quiet else None)


def edits(sites: Sites, chance: random.Random) -> Iterator[Edit]:
    """All kinds in turn, each at places chosen at random, without end."""
    version, top = sites.trees.library.version, sites.trees.verl
    makers: list[Callable[[], Edit | None]] = []

    def defined(where: str, way: str) -> Edit | None:
        take = chance.choice(sites.own if where == "verl" else sites.takes)
        file = sites.home(take.module, take.name)
        return redefined(file, take.name, way, where) if file is not None else None

    def signed(way: str) -> Edit | None:
        call = chance.choice(sites.calls)
        return resigned(call, sites.home(call.module, call.name), way)

    def relocated(way: str) -> Edit | None:
        return moved(sites, chance.choice(sites.own), way)

    def vendored(way: str) -> Edit | None:
        return copied(sites, chance.choice(sites.takes), way)

    classes = [take for take in sites.takes if take.name[0].isupper()]

    def taken(way: str, *, wrong: bool) -> Edit:
        take = chance.choice(classes if way == "subclass" else sites.takes)
        return retaken(take, way, wrong=wrong, version=version, top=top)

    makers += [partial(taken, way, wrong=wrong) for way, wrong in itertools.product(TAKEN, (False, True))]
    makers += [partial(defined, where, way) for where, way in itertools.product(("verl", "vLLM"), DEFINED)]
    makers += [partial(signed, way) for way in SIGNATURES if sites.calls]
    makers += [partial(relocated, way) for way in MOVES]
    makers += [partial(vendored, way) for way in COPIES]
    while True:
        for make in makers:
            edit = make()
            if edit is not None:
                yield edit


@dataclass(frozen=True)
class Sites:
    """Where edits may be made."""

    trees: Trees
    takes: list[Take]
    own: list[Take]
    calls: list[Call]

    def file_of(self, module: str) -> Path | None:
        """The file of a module in the copies."""
        top = self.trees.verl if module.partition(".")[0] == "verl" else self.trees.vllm
        path = top.parent / module.replace(".", "/")
        return next(
            (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
        )

    def home(self, module: str, name: str) -> Path | None:
        """The file in which a name is defined that a module may only hand on."""
        for _ in range(4):
            file = self.file_of(module)
            for node in ast.parse(file.read_bytes()).body if file is not None else ():
                if isinstance(node, _DEFINED) and node.name == name:
                    return file
                if isinstance(node, ast.ImportFrom) and any(
                    alias.name == name and not alias.asname for alias in node.names
                ):
                    package = (
                        module
                        if file is not None and file.name == "__init__.py"
                        else module.rpartition(".")[0]
                    )
                    module = absolute(node, package)
        return None


def entries(own: Tree) -> list[str]:
    """The modules with which the rollouts begin."""
    verl = SourceTree(Path(own.folder), "verl", "verl", ("vllm",))

    def parsed(name: str) -> ast.Module | None:
        file = verl.locate(name)
        tree = parse(file.path.read_bytes(), file.path) if file is not None else None
        return tree if isinstance(tree, ast.Module) else None

    found = rollout_entries(verl, parsed, lambda _: False, "vllm")
    return list(dict.fromkeys(name.partition(":")[0] for names in found.values() for name in names))


def errors(pair: Trees, settings: Settings) -> set[str]:
    """What the doctor calls an error: what stops every job with verl's defaults."""
    found = read_trees(VllmUses, pair.own, pair.library, "3.11.7", Surroundings(settings=settings))
    if not isinstance(found, VllmUses):
        return {f"not read: {found.reason}"}
    uses = {f"{use.kind} {use.name}" for use in found.uses if use.breaks and use.paths and not use.when}
    return uses | {file.reason for file in found.unread if file.paths}


def _remember_parsed() -> None:
    """A file that has not changed is parsed once for all edits."""
    known = cache(source.parse)
    for module in (source, resolve, trees):
        if hasattr(module, "parse"):
            module.parse = known  # type: ignore[attr-defined]


def python_packages(python: Path) -> Path:
    """Where an environment has its packages."""
    return next(python.parent.parent.glob("lib/python3*/site-packages"))


def shared_lines(there: Path, here: Path, lines: set[int]) -> set[int]:
    """The lines of one file that another has too, as it numbers them."""
    before, after = (file.read_text("utf-8").splitlines() for file in (there, here))
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {
        line - block.a + block.b for block in blocks for line in lines if 0 <= line - 1 - block.a < block.size
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="edits of real trees, judged and tried")
    parser.add_argument("python", type=Path)
    parser.add_argument("--executed", type=Path, default=EXECUTED)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--pair", type=Path, nargs=2, metavar=("VERL", "VLLM"))
    parser.add_argument("--only", default="", help="edits whose name has these words")
    options = parser.parse_args()
    python = options.python.absolute()
    packages = python_packages(python)
    with tempfile.TemporaryDirectory() as home:
        pair = Trees(*(options.pair or (packages, packages)), Path(home))
        results = measured(pair, python, Path(home), options)
    counts = Counter(kind for kind, *_ in results)
    by_kind = Counter((key.partition(" |")[0], kind) for kind, key, *_ in results)
    for (edit, kind), count in sorted(by_kind.items()):
        print(f"{edit}: {kind} {count}")
    for kind, key, raised, found, doubt in results:
        if kind in {"missed", "false"} or doubt:
            print(f"{kind}{doubt}: {key}: {raised or found}")
    breaks = counts["found"] + counts["missed"]
    print(f"{len(results)} edits: {counts['found']} of {breaks} breaks found, {counts['false']} false errors")
    return 1 if counts["false"] or counts["found"] < _FOUND * breaks else 0


def measured(pair: Trees, python: Path, home: Path, options: argparse.Namespace) -> list[Result]:
    """What came of each edit."""
    _remember_parsed()
    modules = entries(pair.own)
    first = Oracle(python, home, [], pair.unedited)
    loaded = first.ask(path=pair.paths(library=False), modules=modules, probes=[], files=True)
    first.close()
    if "files" not in loaded:
        raise SystemExit(f"the trees do not load as they are: {loaded}")
    executed: dict[str, set[int]] = {}
    for line in options.executed.read_text("utf-8").splitlines():
        file, _, numbers = line.partition(":")
        there, here = python_packages(python) / file, pair.verl.parent / file
        if here.exists():
            executed[file] = shared_lines(there, here, set(map(int, numbers.split(","))))
    takes, own, calls, probes = [], [], [], []
    for module, file in sorted(loaded["files"].items()):
        if not file.startswith(f"{pair.verl}/") or not file.endswith(".py"):
            continue
        path, text = Path(file), Path(file).read_text("utf-8")
        takes += takes_in(path, text, "vllm")
        own += takes_in(path, text, "verl")
        margin = {take.bound: take for take in takes_in(path, text, "vllm")}
        for probe, node in probes_in(
            path, module, text, executed.get(f"verl/{path.relative_to(pair.verl)}", set())
        ):
            probes.append(probe)
            head, _, method = probe["of"].partition(".")
            if isinstance(node, ast.Call) and head in margin and "." not in method and "positional" in probe:
                calls.append(Call(path, node, margin[head].module, margin[head].name, method, module))
    known = sorted(
        name for name, file in loaded["files"].items() if name.partition(".")[0] not in {"verl", "__main__"}
    )
    quick = Oracle(python, home, known, pair.unedited)
    others = [name for name in known if name.partition(".")[0] != "vllm"]
    slow = Oracle(python, home, others, pair.unedited)
    before = {
        library: oracle.ask(path=pair.paths(library=library), modules=modules, probes=probes)
        for library, oracle in ((False, quick), (True, slow))
    }
    if broken := [answer["import"] for answer in before.values() if "import" in answer]:
        raise SystemExit(f"the trees do not load as they are: {broken}")
    composed = defaults_of(pair.own, Machine())
    settings = Settings({} if composed is None else composed.after)
    base = errors(pair, settings)
    print(
        f"{len(takes)} imports of vLLM, {len(own)} of verl, {len(calls)} calls, {len(probes)} probes; before any edit: {before}, {base}",
        flush=True,
    )
    done: dict[str, Result] = {}
    if options.results and options.results.exists():
        done = {
            entry[1]: (*entry,) for entry in map(json.loads, options.results.read_text("utf-8").splitlines())
        }
    results: dict[str, Result] = {}
    for edit in edits(Sites(pair, takes, own, calls), random.Random(options.seed)):
        if len(results) >= options.count:
            break
        if edit.key in results or options.only not in edit.key:
            continue
        if edit.key not in done:
            library = any(path.is_relative_to(pair.vllm) for path in edit.texts)
            for _ in pair.edited(edit):
                oracle = slow if library else quick
                oracle.begin(
                    path=pair.paths(library=library), modules=modules, probes=[*probes, *edit.probes]
                )
                found = "; ".join(sorted(errors(pair, settings) - base))
                real = oracle.answer()
            usual = before[library].get("failed", {})
            raised = real.get("import") or "; ".join(
                text for key, text in real["failed"].items() if key not in usual
            )
            kind = "found" if raised and found else "missed" if raised else "false" if found else "silent"
            doubt = "" if edit.breaks in (None, bool(raised)) else ", Python disagrees with what was fixed"
            done[edit.key] = (kind, edit.key, raised[:300], found[:300], doubt)
            if options.results:
                with options.results.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(done[edit.key]) + "\n")
        results[edit.key] = done[edit.key]
    quick.close()
    slow.close()
    return list(results.values())


if __name__ == "__main__":
    sys.exit(main())
