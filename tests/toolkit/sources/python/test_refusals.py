"""Refusals of validating code, read from its syntax tree; uncertain ones are not reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.sources.hydra.lookup import lookup
from verl_doctor.toolkit.sources.python.definitions import ClassNode, FunctionNode
from verl_doctor.toolkit.sources.python.refusals.follower import Follower
from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError, Refusal, RefusedError
from verl_doctor.toolkit.sources.python.refusals.values import Made, Section
from verl_doctor.toolkit.sources.python.source import SourceTree

TREE: Mapping[str, Any] = {
    "n": 2,
    "zero": 0,
    "must": "???",
    "text": "a",
    "none": None,
    "far": "${oc.env:X}",
    "names": ["a", "b"],
    "empty": {},
    "tools": {"one": {"_target_": "pack.classes.Child", "size": 3, "part": 2}},
    "actor": {"_target_": "pack.classes.Child", "size": 3, "part": 2, "style": "linear", "inner": {"_target_": "pack.classes.Inner"}},
}  # fmt: skip

CLASSES = """
from dataclasses import dataclass
from typing import Literal
from enum import Enum

Sizes = Literal[1, 8, 16]
REGISTRY = {}

class Kind(str, Enum):
    A = "a"

class Inner:
    width: int = 4

@dataclass
class Parent:
    size: int = 1
    part: int | None = None
    style: str = "constant"

    def __post_init__(self):
        if self.size % self.part != 0:
            raise ValueError(f"{self.size} is no multiple of {self.part}")

@dataclass
class Child(Parent):
    def __post_init__(self):
        self.half = self.size
        super().__post_init__()

    def validate(self, total):
        assert total > self.half, "too few"
"""


def refused(tmp_path: Path, body: str) -> Refusal | None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").write_text("from .classes import *\n")
    (pack / "classes.py").write_text(CLASSES)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (pack / "main.py").write_text(
        f"import os, torch\nfrom pack import Kind, REGISTRY, Sizes\n\ndef f(config):\n{lines}"
    )
    follower = Follower(
        [SourceTree(pack, "pack")],
        lambda key: lookup(TREE, key),
        calls={"get_world_size": 3},
        removed=frozenset({"gone"}),
    )
    function = follower.definitions.named("pack.main.f")
    assert isinstance(function, FunctionNode)
    try:
        follower.call(function, [Section("")], {})
    except RefusedError as error:
        return error.refusal
    except NotFollowedError:
        return None
    return None


@pytest.mark.parametrize(
    ("body", "raised", "keys"),
    [
        ("assert config.n == 3, 'no'", "AssertionError", ("n",)),
        ("if config.n < 5 and config.text != 'b':\n    raise ValueError('no')", "ValueError", ("n", "text")),
        ("total = config.n * 2\nif total > 3:\n    raise ValueError('no')", "ValueError", ("n",)),
        ("def inner(one):\n    if one is None:\n        raise KeyError('x')\ninner(config.get('none'))", "KeyError", ("none",)),
        ("return config.n < config.none", "TypeError", ("n", "none")),
        ("return config.text.width", "AttributeError", ("text",)),
        ("return 5 % (config.n - 2)", "ZeroDivisionError", ("n",)),
        ("return config.names[2]", "IndexError", ("names",)),
        ("if config.text == Kind.A:\n    raise ValueError", "ValueError", ("text",)),
        ("from typing import get_args\nif config.n not in sorted(get_args(Sizes)):\n    raise ValueError('size')", "ValueError", ("n",)),
        ("for name in ['x', config.text]:\n    assert name in ['x', 'y']", "AssertionError", ("text",)),
        ("for name in config.names:\n    assert name in ['a', 'c']", "AssertionError", ("names",)),
        ("omega_conf_to_dataclass(config.tools)", "ValueError", ("tools.one.size", "tools.one.part")),
        ("omega_conf_to_dataclass(config.actor)", "ValueError", ("actor.size", "actor.part")),
        ("assert config.get('missing', 4) == 5", "AssertionError", ("missing",)),
        ("assert os.getpid() in config.n", "TypeError", ("n",)),
        ("torch.Generator().manual_seed(config.text)", "RuntimeError", ("text",)),
        ("left = os.getpid() % config.zero", "ZeroDivisionError", ("zero",)),
        ("if config.text not in ['fp16', torch.float16]:\n    raise ValueError", "ValueError", ("text",)),
        ("config.must.lower()", "MissingMandatoryValue", ("must",)),
        ("config.gone.lower()", "ConfigAttributeError", ("gone",)),
        ("d = {}\nd['x'] = 1\nd.update(config.n)", "TypeError", ("n",)),
        ("d = {}\nd.update(config.text)", "ValueError", ("text",)),
        ("d = {'x': 1}\nlen(d)\nassert config.text in d", "AssertionError", ("text",)),
        ("try:\n    from pack import Kind as kind\nexcept ImportError:\n    kind = None\nassert config.text != kind.A", "AssertionError", ("text",)),
        ("if config.actor:\n    raise KeyError", "KeyError", ()),
        ("if config.text in {'a', 'b'}:\n    raise KeyError", "KeyError", ("text",)),
        ("try:\n    x = 1\nexcept ValueError:\n    raise\nassert x == 2", "AssertionError", ()),
        ("return config.none + os.getpid()", "TypeError", ("none",)),
        ("if config.n == 2:\n    open(**config.none)", "TypeError", ("none",)),
        ("return {'x': 1, **config.text}", "TypeError", ("text",)),
        ("try:\n    x = float(config.text)\nexcept KeyError:\n    pass\nexcept (TypeError, ValueError) as e:\n    raise IndexError from e", "IndexError", ("text",)),
        ("world_size = get_world_size()\nassert world_size % config.n == 0", "AssertionError", ("n",)),
    ],
)  # fmt: skip
def test_certain_faults_are_reported(tmp_path: Path, body: str, raised: str, keys: tuple[str, ...]) -> None:
    found = refused(tmp_path, body)
    assert found is not None
    assert (found.raised, found.keys) == (raised, keys)
    assert found.read_from.rpartition(":")[0].endswith(".py")


@pytest.mark.parametrize(
    "body",
    [
        "assert not config.get('must')",
        "assert config.n == 2",
        "torch.Generator().manual_seed(config.n)",
        "left = os.getpid() % config.n",
        "config.get('gone')",
        "config.not_gone.lower()",
        "if config.text == torch.float16:\n    raise ValueError",
        "assert torch.half in [torch.float16]",
        "assert config.far == 'x'",
        "assert config.missing == 'x'",
        "assert config.text in REGISTRY",
        "if config.far:\n    return\nraise ValueError",
        "if os.path.exists('/gone'):\n    raise ValueError",
        "x = 1\nif config.far:\n    x = 2\nassert x == 1",
        "try:\n    assert config.n == 3\nexcept AssertionError:\n    pass",
        "while config.far:\n    raise ValueError",
        "return os.getpid() % config.none",
        "open(**config.actor)",
        "return {**config.actor}",
        "try:\n    x = float(config.text)\nexcept Own:\n    pass\nexcept ValueError:\n    raise IndexError",
        "try:\n    x = float(config.text)\nexcept ValueError:\n    x = 0\nraise_if(x)",
        "if config.far and config.n < config.none:\n    raise ValueError",
        "made = omega_conf_to_dataclass(config.actor.inner)\nassert made.width == 4",
        "yield 1\nraise ValueError",
        "for name in os.listdir('.'):\n    assert name == 'x'",
        "d = {}\nfor name in os.listdir('.'):\n    d[name] = 1\nassert d",
        "d = {}\nd[config.far] = 1\nassert d",
        "d = []\nd.append(config.far)\nassert d",
        "d = {'a': 1}\nd.pop('a')\nassert not d",
        "d = {}\nos.fill(d)\nassert d",
        "d = {}\nif config.far:\n    d.update(a=1)\nassert d",
        "config.n = 3\nassert config.n == 3",
        "config['n'] = 3\nassert config.n == 3",
        "if config.far:\n    config.actor.size = 4\nassert config.actor.size == 4",
        "config.actor.update({'size': 4})\nassert config.actor.size == 4",
        "made = omega_conf_to_dataclass(config.actor.inner)\nif config.far:\n    made.width = 5\nassert made.width == 5",
        "if config.empty:\n    raise ValueError",
        "assert not range(0)",
        "config.names[1] + config.names[-3]",
        "more = list(config.names)\nmore.append(1)\nmore[2]",
        "try:\n    config.names[2]\nexcept IndexError:\n    pass",
        "assert set(config.names) == {'b', 'a'} and not set(config.names) - {'a', 'b'}",
        "assert len({1, 1}) == 1",
        "try:\n    import gone\n    found = True\nexcept ImportError:\n    found = False\nassert not found",
        "try:\n    x = 1\nexcept ValueError:\n    pass\nelse:\n    x = 2\nassert x == 2",
        "x = y = []\nx.append(1)\nassert len(y) == 1",
        "x = [[]]\ny = x[0]\ny.append(2)\nassert x[0]",
        "d = {}\nlast = d\nlast['b'] = 2\nassert len(d) == 1",
        "x = 1\ndef f():\n    nonlocal x\n    x = 2\nf()\nassert x == 2",
        "x = 1\ndef f():\n    nonlocal x\n    x = 2\nx = 3\nf()\nassert x == 2",
        "x = config.far or 5\nassert x == 4",
    ],
)
def test_uncertain_faults_are_not_reported(tmp_path: Path, body: str) -> None:
    assert refused(tmp_path, body) is None


def test_message_is_shown_with_its_values(tmp_path: Path) -> None:
    found = refused(tmp_path, "omega_conf_to_dataclass(config.actor)")
    assert found is not None
    assert found.text == "3 is no multiple of 2"
    assert found.condition == "self.size % self.part != 0"


LATER = """
from contextlib import suppress

class Trainer:
    def fit(self):
        while self.step < self.config.n:
            with timer("step"):
                if self.config.none > 0:
                    save()

    def left(self):
        for row in self.rows:
            if row.empty:
                continue
            assert self.config.n > 2

    def guarded(self):
        with suppress(TypeError):
            assert self.config.n > 2

    async def start(self):
        return await self.checked(self.config.text)

    async def checked(self, text):
        return int(text)

class Optimizer:
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999)):
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")

def choices(name, known):
    def read():
        value = os.getenv(name)
        if value not in [word.lower() for word in known]:
            raise ValueError(f"no {value}")
        return value
    return read
"""


@pytest.fixture
def later(tmp_path: Path) -> Callable[[], Follower]:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "later.py").write_text(LATER)
    tree = SourceTree(tmp_path / "pack", "pack")
    return lambda: Follower([tree], lambda key: lookup(TREE, key) if key else TREE, loops=True, variable={"MODE": "fast"}.get)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "raised"),
    [("fit", "TypeError"), ("start", "ValueError"), ("left", ""), ("guarded", "")],
)
def test_loop_is_entered_once_and_uncertain_code_raises_nothing(
    later: Callable[[], Follower], method: str, raised: str
) -> None:
    follower = later()
    trainer = follower.definitions.named("pack.later.Trainer")
    assert isinstance(trainer, ClassNode)
    found = ""
    try:
        follower.method_of(Made(trainer, {"config": Section("")}), method, {})
    except RefusedError as error:
        found = error.refusal.raised
    except NotFollowedError:
        pass
    assert found == raised


@pytest.mark.parametrize(
    ("given", "words"),
    [({"lr": 1}, ""), ({"lr": -1}, "Invalid learning rate: -1"), ({"eps": 1}, "unexpected keyword argument 'eps'")],
)  # fmt: skip
def test_object_is_constructed_with_arguments(
    later: Callable[[], Follower], given: dict[str, Any], words: str
) -> None:
    follower = later()
    owner = follower.definitions.named("pack.later.Optimizer")
    assert isinstance(owner, ClassNode)
    if not words:
        follower.constructed(owner, given, {})
        return
    with pytest.raises(RefusedError) as refused:
        follower.constructed(owner, given, {})
    assert words in refused.value.refusal.text


def test_variable_with_an_invalid_choice_is_refused(later: Callable[[], Follower]) -> None:
    follower = later()
    for known, refuses in ((["SLOW"], True), (["FAST"], False)):
        read = follower.call(follower.definitions.named("pack.later.choices"), ("MODE", known), {})
        if refuses:
            with pytest.raises(RefusedError, match="no fast"):
                follower.call(read, (), {})
        else:
            assert follower.call(read, (), {}) == "fast"
