"""Certain failures in a user's file: nothing that depends on a value or on something defined elsewhere."""

from __future__ import annotations

import ast

import pytest

from verl_doctor.toolkit.collectors.configuration.own_calls import refused_in_a_thread, remembered
from verl_doctor.toolkit.collectors.configuration.own_code import breaks, reads
from verl_doctor.toolkit.sources.python.bound import lasting


def found(text: str) -> list[str]:
    is_set, is_there = {"GIVEN"}.__contains__, {"/there"}.__contains__
    return list(breaks(ast.parse(text), text, "score", is_set, is_there))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("raise RuntimeError('no')", "raises RuntimeError when it is imported (line 1)"),
        ("import sys\nsys.exit(1)", "ends the process when it is imported (line 2)"),
        ("T = open('/gone').read()", "opens /gone when it is imported (line 1), and that does not exist"),
        ("with open('/gone') as f:\n    T = f.read()", "opens /gone when it is imported (line 1)"),
        ("import os\nK = os.environ['MISSING']", "reads os.environ['MISSING'] when it is imported (line 2)"),
        (
            "def score(a):\n    x = a\n    return scor(x)",
            "uses scor in score (line 3), and nothing defines it",
        ),
        ("def score(a):\n    raise ValueError\n", "raises ValueError in score (line 2)"),
        (
            "def part(a):\n    return re.findall('x', a)\ndef score(a):\n    return 1 if part(a) else 0",
            "uses re in part (line 2)",
        ),
        (
            "from .parts import last\ndef score(a):\n    return last(a)",
            "imports from its own package with a dot (line 1)",
        ),
        (
            "from mine import *\ndef part(a):\n    raise ValueError\ndef score(a):\n    return part(a)",
            "raises ValueError in part (line 3)",
        ),
        (
            "import os\ndef score(a):\n    return call(os.environ['MISSING'])\ndef call(k): ...",
            "reads os.environ",
        ),
    ],
)
def test_certain_failures_are_reported(text: str, problem: str) -> None:
    assert any(words.startswith(problem) for words in found(text))


@pytest.mark.parametrize(
    "text",
    [
        "if True:\n    raise RuntimeError",
        "import os, mysettings\nK = os.environ['MISSING']",
        "import mysettings\nmysettings.make()\nT = open('/gone')",
        "from gcs import open\nT = open('/gone')",
        "def exit(x): ...\nexit(3)",
        "import os as o\nimport os\no.environ['MISSING'] = '1'\nK = os.environ['MISSING']",
        "import os\nos.environ |= {'MISSING': '1'}\nK = os.environ['MISSING']",
        "def score(a):\n    return 1 < a < scor",
        "def score(a):\n    yield a\n    raise ValueError",
        "try:\n    T = open('/gone')\nexcept OSError:\n    T = None",
        "def load():\n    return open('/gone')",
        "T = lambda: open('/gone')",
        "T = open('/there').read()",
        "T = open('relative').read()",
        "import subprocess\nsubprocess.run(['fetch'])\nT = open('/gone').read()",
        "with open('/gone', 'w') as f:\n    f.write('')",
        "import os\nK = os.environ['GIVEN'], os.environ['RANK'], os.environ['GITHUB_TOKEN'], os.environ['PET_NNODES'], os.environ['CUDA_VISIBLE_DEVICES']",
        "import os\nos.environ['MISSING'] = '1'\nK = os.environ['MISSING']",
        "from dotenv import load_dotenv\nimport os\nload_dotenv()\nK = os.environ['MISSING']",
        "import os\nK = os.environ['MISSING'] if 'MISSING' in os.environ else ''",
        "import os\nK = os.environ.get('MISSING') or os.environ.get('OTHER')",
        "import os\nK = True or os.environ['MISSING']",
        "def score(a):\n    if a:\n        return 1\n    return scor(a)",
        "def score(a):\n    return [scor(x) for x in a]",
        "from helper import *\ndef score(a):\n    return scor(a)",
        "globals()['scor'] = len\ndef score(a):\n    return scor(a)",
        "def other(a):\n    return scor(a)",
        "def part(a):\n    return scor(a)\ndef score(a):\n    return a and part(a)",
        "def part(a):\n    return scor(a)\ndef score(a, part=len):\n    return part(a)",
        "@wraps\ndef part(a):\n    return scor(a)\ndef score(a):\n    return part(a)",
        "try:\n    from .parts import last\nexcept ImportError:\n    last = None",
        "def score(a):\n    return later(a)\ndef later(a):\n    return 1",
        "import contextlib\nwith contextlib.suppress(OSError):\n    T = open('/gone')",
        "print(__file__, __name__, __builtins__)",
        "from mine import safe\ndef score(a):\n    raise ValueError\nscore = safe(score)",
        "def score(a):\n    raise ValueError\ntry:\n    from mine import score\nexcept ImportError:\n    pass",
        "def score(a):\n    raise ValueError\nfrom mine import *",
        "import sys\ndef score(a):\n    raise ValueError\nsetattr(sys.modules[__name__], 'score', len)",
        "from mine import safe\ndef fail(a):\n    raise ValueError\nfail = safe(fail)\ndef score(a):\n    return fail(a)",
        "def fail(a):\n    raise ValueError\ndef score(a):\n    match a:\n        case fail:\n            pass\n    return fail(a)",
        "def fail(a):\n    raise ValueError\ndef score(a):\n    match a:\n        case [*fail]:\n            pass\n    return fail(a)",
        "def fail(a):\n    raise ValueError\ndef score(a):\n    match a:\n        case {**fail}:\n            pass\n    return fail(a)",
        "def fail(a):\n    raise ValueError\ndef score(a):\n    try:\n        a()\n    except TypeError as fail:\n        pass\n    return fail(a)",
        "vars().update(SCALE=2.0)\ndef score(a):\n    return SCALE",
        "locals()['SCALE'] = 2.0\ndef score(a):\n    return SCALE",
        "__builtins__['SCALE'] = 2.0\ndef score(a):\n    return SCALE",
        "import sys\nsys.modules[__name__].__dict__['SCALE'] = 2.0\ndef score(a):\n    return SCALE",
        "import gettext\ngettext.install('mine')\ndef score(a):\n    return _(a)",
        "__package__ = 'scoring'\nfrom .parts import last\ndef score(a):\n    return last(a)",
        "__path__ = ['/there']\nfrom .parts import last\ndef score(a):\n    return last(a)",
        "import importlib.util\n__spec__ = importlib.util.find_spec('scoring.rewards')\nfrom .parts import last\ndef score(a):\n    return last(a)",
        "class A:\n    b = 1\n    c = b\ndef score(a, *, k: Optional = None) -> Any:\n    global G\n    G = 1\n    return G",
    ],
)
def test_code_that_may_work_is_not_reported(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def score(info):\n    return info['x']\n", ["info['x']"]),
        ("async def score(info, truth):\n    a = truth.strip()\n    return len(info['x'])\n", ["truth.strip", "info['x']"]),
        ("def score(info):\n    if info:\n        return info['x']\n", []),
        ("def score(info):\n    try:\n        return info['x']\n    except KeyError:\n        return 0\n", []),
        ("def score(info):\n    info = info or {}\n    return info['x']\n", []),
        ("def score(info):\n    return info['x'] if info else 0\n", []),
        ("def score(info):\n    info['x'] = 1\n    return info[0]\n", []),
        ("def score(info):\n    yield info['x']\n", []),
        ("@once\ndef score(info):\n    return info['x']\n", []),
        ("def other(info):\n    return info['x']\n", []),
        ("def score(info):\n    info.setdefault('x', 1)\n    return info['x']\n", []),
        ("def score(info):\n    info.update(MORE)\n    return info['x']\n", []),
        ("def score(info):\n    info['x'] = 1\n    return info['x']\n", []),
        ("def score(info):\n    if 'x' not in info:\n        info['x'] = 1\n    return info['x']\n", []),
        ("def score(info):\n    for name in NAMES:\n        info[name] = 1\n    return info['x']\n", []),
        ("def score(info):\n    fill(info)\n    return info['x']\n", []),
        ("def score(info):\n    fill(*info, more=info)\n    return info['x']\n", []),
        ("def score(info):\n    same = info\n    same.update(MORE)\n    return info['x']\n", []),
        ("def score(self, info):\n    self.info = info\n    self.fill()\n    return info['x']\n", []),
        ("def score(info):\n    import json as info\n    return info.dumps({})\n", []),
        ("def score(info):\n    match info:\n        case _ as info:\n            pass\n    return info['x']\n", []),
        ("def score(info):\n    print(info, info.get('y'))\n    a = info['x']\n    fill(info)\n    return a\n", ["info.get", "info['x']"]),
        ("def score(self, info):\n    self.info = info\n    self.x = info['x']\n", ["info['x']"]),
    ],
)  # fmt: skip
def test_what_a_function_certainly_reads_of_its_parameters(text: str, found: list[str]) -> None:
    shown = [f"{read.parameter}[{read.name!r}]" if read.is_item else f"{read.parameter}.{read.name}" for read in reads(lasting(ast.parse(text)).get("score"))]  # fmt: skip
    assert shown == found


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("import signal\ndef score(a):\n    signal.signal(signal.SIGALRM, late)\n", "in score (line 3)"),
        ("from signal import signal as on\ndef score(a):\n    limit()\ndef limit():\n    on(14, late)\n", "in limit (line 5)"),
        ("def score(a):\n    import signal as s\n    old = s.signal(14, late)\n    try:\n        return 1\n    finally:\n        s.alarm(0)\n", "in score (line 3)"),
        (
            "import signal\nclass Limit:\n    def __enter__(self):\n        signal.signal(14, late)\ndef score(a):\n    with Limit(5):\n        return 1\n",
            "in __enter__ of Limit (line 4)",
        ),
        ("import signal\ndef score(a):\n    signal.alarm(5)\n", ""),
        ("import signal\nsignal.signal(14, late)\ndef score(a):\n    return 1\n", ""),
        ("import signal\ndef score(a):\n    if is_main():\n        signal.signal(14, late)\n    return 1\n", ""),
        ("import signal\ndef score(a):\n    try:\n        signal.signal(14, late)\n    except ValueError:\n        pass\n", ""),
        ("import signal\nasync def score(a):\n    signal.signal(14, late)\n", ""),
        ("import signal\n@in_a_process\ndef score(a):\n    signal.signal(14, late)\n", ""),
        ("import signal\nsignal = None\ndef score(a):\n    signal.signal(14, late)\n", ""),
        ("from mine import signal\ndef score(a):\n    signal.signal(14, late)\n", ""),
        ("import asyncio\ndef score(a):\n    return asyncio.get_event_loop().run_until_complete(judge(a))\n", "calls asyncio.get_event_loop in score (line 3)"),
        ("from asyncio import get_running_loop as loop\ndef score(a):\n    return run(a)\ndef run(a):\n    return loop().time()\n", "calls loop in run (line 5)"),
        ("import asyncio\ndef score(a):\n    return asyncio.run(judge(a))\n", ""),
        ("import asyncio\ndef score(a):\n    loop = asyncio.new_event_loop()\n    return loop.run_until_complete(judge(a))\n", ""),
        ("import asyncio\ndef score(a):\n    asyncio.set_event_loop(asyncio.new_event_loop())\n    return asyncio.get_event_loop().time()\n", ""),
        ("import asyncio\ndef score(a):\n    try:\n        loop = asyncio.get_event_loop()\n    except RuntimeError:\n        loop = asyncio.new_event_loop()\n    return loop.time()\n", ""),
        ("import asyncio\nasync def score(a):\n    return asyncio.get_event_loop().time()\n", ""),
        ("import asyncio, mine\ndef score(a):\n    return asyncio.get_event_loop().time()\n", ""),
        ("import asyncio\nloop = asyncio.get_event_loop()\ndef score(a):\n    async def inner():\n        asyncio.get_running_loop()\n    return asyncio.run(inner())\n", ""),
        ("import signal\nclass Limit:\n    def __enter__(self):\n        signal.signal(14, late)\ndef score(a):\n    if not a:\n        return 0\n    with Limit(5):\n        return 1\n", ""),
    ],
)  # fmt: skip
def test_what_a_thread_refuses(text: str, where: str) -> None:
    found = list(refused_in_a_thread(ast.parse(text), "score"))
    assert [where in problem for problem in found] == ([True] if where else [])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("from functools import lru_cache\n@lru_cache\ndef score(answer, extra_info=None):\n    return 1\n", "has a score that remembers"),
        ("import functools as f\n@f.cache\ndef score(**row):\n    return 1\n", "has a score that remembers"),
        ("from functools import cache\n@cache\ndef part(info):\n    return 1\ndef score(answer, extra_info=None):\n    return part(extra_info)\n", "passes extra_info to part in score (line 6)"),
        ("from functools import cache\n@cache\ndef part(text):\n    return 1\ndef score(answer, extra_info=None):\n    return part(answer)\n", ""),
        ("from functools import cache\n@cache\ndef part(text):\n    return 1\ndef score(answer, extra_info=None):\n    extra_info = str(extra_info)\n    return part(extra_info)\n", ""),
        ("from functools import cache\n@cache\ndef part(text):\n    return 1\ndef score(answer, extra_info=None):\n    return part(str(extra_info))\n", ""),
        ("from functools import wraps\n@wraps(other)\ndef score(**row):\n    return 1\n", ""),
        ("from mine import lru_cache\n@lru_cache\ndef score(**row):\n    return 1\n", ""),
        ("from functools import lru_cache\n@hashable\n@lru_cache\ndef score(**row):\n    return 1\n", ""),
    ],
)  # fmt: skip
def test_dictionary_for_a_function_that_remembers(text: str, where: str) -> None:
    found = list(remembered(ast.parse(text), "score"))
    assert [where in problem for problem in found] == ([True] if where else [])
