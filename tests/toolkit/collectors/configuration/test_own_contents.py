"""Faults in the user's files, and correct content."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration import own_contents

LOOP = "+actor_rollout_ref.rollout.agent.default_agent_loop=mine"
FOUR = "def f(data_source, solution_str, ground_truth, extra_info=None):\n"
FIVE = "def f(data_source, solution_str, ground_truth, extra_info=None, *, scale):\n    return scale\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: mine\n  _target_: loops.Loop\n", ""),
        ("- name: mine\n  _target_: elsewhere.Loop\n", ""),
        ("- name: other\n  _target_: loops.Gone\n", ""),
        ("- name: mine\n  _target_: loops.Gone\n", "has no Gone"),
        ("name: mine\n_target_: loops.Loop\n", "not a list of agent loops"),
        ("- _target_: loops.Loop\n", "without a name"),
        ("- ${oc.create:${entry}}\n", ""),
    ],
)
def test_agent_loops(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "loops.py").write_text("class Loop:\n    pass\n")
    (tmp_path / "agents.yaml").write_text(text)
    found = list(own_contents.agent_loops(configured(LOOP)[0], tmp_path / "agents.yaml", (tmp_path,)))
    assert [problem in words for words in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tools:\n  - class_name: mine.Tool\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Own\n    config: {type: native}\n", ""),
        ("tools:\n  - class_name: mine.Tool\n    config: {type: native}\n", "has no tool_schema for mine.Tool"),
        ("tools:\n  - class_name: mine.Gone\n    config: {type: native}\n", "has no Gone"),
        ("tools:\n  - class_name: mine.Own\n", "no config.type"),
        ("tools:\n  - config: {type: native}\n", "without class_name"),
        ("- class_name: mine.Own\n", "no list of tools"),
        ("tools:\n  - class_name: mine.Search\n    config: {type: native, url: x}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Search\n    config: {type: native}\n    tool_schema: {type: function}\n", "no config.url, which its constructor reads"),
        ("tools:\n  - class_name: mine.Filled\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Created\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Inherits\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.After\n    config: {type: native}\n    tool_schema: {type: function}\n", "no config.url, which its constructor reads"),
        ("tools: ${more}\n", ""),
        ("tools:\n  - ${more.0}\n", ""),
        ("tools:\n  - class_name: mine.Own\n    config: ${more}\n", ""),
    ],
)  # fmt: skip
def test_tools(tmp_path: Path, text: str, problem: str) -> None:
    classes = "class Tool(BaseTool):\n    pass\n\n\nclass Own(BaseTool):\n    def get_openai_tool_schema(self):\n        return SCHEMA\n"
    classes += "\n\nclass Search(BaseTool):\n    def __init__(self, config, tool_schema):\n        self.url = config['url']\n"
    classes += "\n\nclass Filled(BaseTool):\n    def __init__(self, config, tool_schema):\n        config.setdefault('url', '')\n        self.url = config['url']\n"
    classes += "\n\nclass Created(Search):\n    def __new__(cls, config, tool_schema):\n        config['url'] = ''\n        return super().__new__(cls)\n\n    def __init__(self, config, tool_schema):\n        self.url = config['url']\n"
    for name, base in (("Inherits", "Filled"), ("After", "BaseTool")):
        classes += f"\n\nclass {name}({base}):\n    def __init__(self, config, tool_schema):\n        super().__init__(config, tool_schema)\n        self.url = config['url']\n"
    (tmp_path / "mine.py").write_text(classes)
    (tmp_path / "tools.yaml").write_text(text)
    found = list(own_contents.tools(tmp_path / "tools.yaml", (tmp_path,)))
    assert [problem in words for words in found] == ([True] if problem else [])


def test_type_of_a_tool_that_verl_does_not_have(tmp_path: Path) -> None:
    registry = tmp_path / "verl/tools/tool_registry.py"
    registry.parent.mkdir(parents=True)
    registry.write_text('class ToolType(Enum):\n    NATIVE = "native"\n')
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: mcp}\n")
    verl = tmp_path / "verl"
    assert list(own_contents.tools(file, (), verl)) == [
        "has a tool of type mcp, but this verl has only native"
    ]
    assert list(own_contents.tools(file, (), tmp_path / "elsewhere")) == []
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: '${oc.env:TOOL_TYPE,native}'}\n")
    assert list(own_contents.tools(file, (), verl)) == []
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: mcp}\n")
    registry.write_text('class ToolType(Enum):\n    NATIVE = "native"\n    MCP = "mcp"\n')
    assert list(own_contents.tools(file, (), verl)) == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ('@function_tool\ndef f(a: int):\n    """Add.\n\n    Args:\n        a: a number\n    """\n', ""),
        ("@function_tool(schema=S)\ndef f(a):\n    pass\n", ""),
        ("def f(a):\n    pass\n", ""),
        ("@function_tool\ndef f(a: int):\n    pass\n", "a tool f without a docstring"),
        ('@function_tool("x")\ndef f(a):\n    """Add."""\n', "parameter a has no type"),
        ('@function_tool\ndef f(a: int):\n    """Add."""\n', "does not describe a"),
    ],
)
def test_function_tools(code: str, problem: str) -> None:
    found = list(own_contents.function_tools(ast.parse(code)))
    assert [problem in words for words in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("code", "words", "problem"),
    [
        ("def f(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n", [], ""),
        ("def f(**kwargs):\n    return {'score': 1}\n", [], ""),
        ("def f(**kwargs):\n    return {'acc': 1, **more}\n", [], ""),
        ("def f(**kwargs):\n    return score(kwargs)\n", [], ""),
        ("def f(**kwargs):\n    raise NotImplementedError\n", [], ""),
        (
            "def f(data_source, solution_str, ground_truth):\n    return 1.0\n",
            [],
            "does not accept extra_info",
        ),
        ("def f(prediction, target, **kwargs):\n    return 1.0\n", [], "requires prediction"),
        (FIVE, [], "requires scale"),
        (FIVE, ["+custom_reward_function.reward_kwargs.scale=2"], ""),
        (FIVE, ["+custom_reward_function.reward_kwargs={scale: 2, by: 1}"], "does not accept by"),
        ("def f(**kwargs):\n    print(kwargs)\n", [], "returns nothing"),
        ("def f(**kwargs):\n    print(kwargs)\nf = scored(f)\n", [], ""),
        ("def f(**kwargs):\n    return {'acc': 1.0}\n", [], "a dictionary without score"),
        ("def f(**kwargs):\n    return 1.0, {'exact': True}\n", [], "returns a tuple"),
        (
            f"{FOUR}    m = re.search('x', solution_str)\n    if m:\n        return 1.0\n",
            [],
            "returns None unless `m` holds",
        ),
        (
            f"{FOUR}    m = re.match('x', solution_str.strip())\n    if m is None:\n        return None\n    return 1.0\n",
            [],
            "returns None unless `m`",
        ),
        (
            f"{FOUR}    if ground_truth in solution_str:\n        return 1.0\n",
            [],
            "returns None unless `ground_truth in solution_str`",
        ),
        (
            f"{FOUR}    try:\n        if re.search('x', solution_str):\n            return 1.0\n    except ValueError:\n        return 0\n",
            [],
            "returns None unless",
        ),
        (
            f"{FOUR}    m = re.search('x', solution_str)\n    if m:\n        return 1.0\n    elif 'b' in solution_str:\n        return 0\n",
            [],
            "returns None unless `'b' in solution_str`",
        ),
        (
            f"{FOUR}    m = re.search('x', solution_str)\n    if m:\n        return 1.0\n    return 0.0\n",
            [],
            "",
        ),
        (
            f"{FOUR}    m = re.search('x', solution_str)\n    if not m:\n        return 0.0\n    if ground_truth in m[0]:\n        return 1.0\n    return 0\n",
            [],
            "",
        ),
        *(
            (f"{FOUR}{body}\n    if m:\n        return 1.0\n", [], "")
            for body in (
                "    if not re.search('a|b', solution_str):\n        return 0\n    m = re.search('a|b', solution_str)",
                "    if '####' not in solution_str:\n        return 0\n    m = re.search('####', solution_str)",
                "    solution_str = solution_str + '####'\n    m = re.search('####', solution_str)",
                "    m = re.search('####|$', solution_str)",
                "    m = re.search(r'(.*)', solution_str)",
                "    m = PATTERN.search(solution_str)",
                "    m = re.search('x', ground_truth)",
            )
        ),
        (
            f"{FOUR}    m = None\n    m = m or re.search('x', solution_str)\n    if m:\n        return 1.0\n",
            [],
            "",
        ),
        (
            f"{FOUR}    if data_source == 'a':\n        return 0\n    elif re.search('x', solution_str):\n        return 1.0\n",
            [],
            "",
        ),
        (
            f"{FOUR}    try:\n        if re.search('x', solution_str):\n            return 1.0\n    except ValueError:\n        pass\n    return 0\n",
            [],
            "",
        ),
        (
            "def f(**kwargs):\n    if kwargs:\n        return 'no'\n    return f'{kwargs}'\n",
            [],
            "returns text",
        ),
        ("def f(**kwargs):\n    if kwargs:\n        return 'no'\n    return 1.0\n", [], ""),
        (
            f"{FOUR}    last = solution_str.split('####')[-1]\n    if last == str(ground_truth):\n        return 1.0\n",
            [],
            "returns None unless `last == str(ground_truth)` holds",
        ),
        *(
            (f"{FOUR}{body}", [], "")
            for body in (
                "    if solution_str == ground_truth:\n        return 1.0\n    return 0.0\n",
                "    if data_source == ground_truth:\n        return 1.0\n",
                "    last = ground_truth\n    last = last or solution_str\n    if last == ground_truth:\n        return 1.0\n",
                "    if ground_truth == clean(ground_truth, solution_str):\n        return 1.0\n",
                "    if solution_str != ground_truth:\n        return 0.0\n    if solution_str == ground_truth:\n        return 1.0\n",
            )
        ),
        ("class f:\n    def __init__(self, weight=1.0): ...\n", [], "constructor accepts no data_source"),
        ("class f:\n    def __call__(self, **row): ...\n", [], "constructor accepts no data_source"),
        *(
            (code, [], "")
            for code in (
                "class f:\n    def __init__(self, **row): ...\n",
                "class f(Base):\n    def __call__(self, **row): ...\n",
                "class f(metaclass=Calls):\n    def __init__(self): ...\n",
                "@wrapped\nclass f:\n    def __init__(self): ...\n",
                "class f:\n    def __new__(cls, **row):\n        return 1.0\n",
                "class f:\n    __init__ = made\n",
                "class f:\n    def __init__(self): ...\nf = f()\n",
            )
        ),
        ("def f(prediction):\n    return 1.0\n", ["+reward_model.reward_manager=mine"], ""),
    ],
)
def test_reward_functions(code: str, words: list[str], problem: str) -> None:
    configuration = configured("+custom_reward_function.name=f", *words)[0]
    found = list(own_contents.reward(configuration, "custom_reward_function", ast.parse(code)))
    assert [problem in text for text in found] == ([True] if problem else [])


OLD = "from verl.workers.reward_manager import get_reward_manager_cls\n"
NEW = "from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls\n"
THREAD = "result = await self.loop.run_in_executor(\n    None,\n    lambda: self.compute_score(\n"


@pytest.mark.parametrize(
    ("loader", "manager", "words", "threaded"),
    [
        (NEW, THREAD, [], True),
        (OLD, THREAD, [], False),
        (NEW, "result = self.compute_score(\n", [], False),
        (NEW, THREAD, ["+reward.reward_manager.name=limited"], False),
    ],
)
def test_thread_in_which_verl_calls_a_reward_function(tmp_path: Path, loader: str, manager: str, words: list[str], *, threaded: bool) -> None:  # fmt: skip
    verl = tmp_path / "verl"
    for name, text in (
        ("trainer/ppo/reward", loader),
        ("experimental/reward_loop/reward_manager/naive", manager),
    ):
        (verl / name).parent.mkdir(parents=True, exist_ok=True)
        (verl / f"{name}.py").write_text(text, "utf-8")
    configuration = replace(configured(*words)[0], program=str(verl / "trainer/main_ppo.py"))
    assert own_contents.calls_in_a_thread(configuration) is threaded
