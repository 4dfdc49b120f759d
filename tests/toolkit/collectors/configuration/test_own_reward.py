"""Reward functions of one's own that verl cannot use, and those that it may be able to use."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration import own_reward

FIVE = "def f(data_source, solution_str, ground_truth, extra_info=None, *, scale):\n    return scale\n"
FOUR = "def f(data_source, solution_str, ground_truth, extra_info=None):\n"


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
        (
            "async def judge(): ...\ndef f(**kwargs):\n    return judge()\n",
            [],
            "returns the coroutine of judge",
        ),
        (
            "async def judge(): ...\ndef f(**kwargs):\n    found = judge()\n    return found\n",
            [],
            "returns the coroutine of judge",
        ),
        ("async def judge(): ...\nasync def f(**kwargs):\n    return await judge()\n", [], ""),
        ("async def judge(): ...\ndef f(**kwargs):\n    return asyncio.run(judge())\n", [], ""),
        ("async def judge():\n    yield 1\ndef f(**kwargs):\n    return judge()\n", [], ""),
        ("@waited\nasync def judge(): ...\ndef f(**kwargs):\n    return judge()\n", [], ""),
        ("def f(**kwargs):\n    pair = (1, 2)\n    return pair\n", [], "returns a tuple"),
        ("def f(**kwargs):\n    pair = (1, 2)\n    pair = 1\n    return pair\n", [], ""),
        ("def f(**kwargs):\n    return {'score': 'none'}\n", [], "a dictionary whose score is text"),
        ("def f(**kwargs):\n    return {'score': 'none', **more}\n", [], ""),
        (
            "from fractions import Fraction\ndef f(**kwargs):\n    return Fraction(1, 2)\n",
            [],
            "",
        ),  # older releases take it
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
    found = list(own_reward.reward(configuration, "custom_reward_function", ast.parse(code)))
    assert [problem in text for text in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("program", "own_parts", "scores"),
    [
        ("/env/verl/trainer/main_ppo.py", False, True),
        ("/env/verl/trainer/main_eval.py", False, False),
        ("/home/me/train.py", True, False),
    ],
)
def test_programs_that_call_the_reward_function_themselves(
    program: str, own_parts: bool, scores: bool
) -> None:
    configuration = replace(*configured(), program=program, own_parts=own_parts)
    assert own_reward.scores_rows(configuration) is scores


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
    assert own_reward.calls_in_a_thread(configuration) is threaded


@pytest.mark.parametrize(
    ("stores", "code", "problem"),
    [
        ("rm_scores[-1] = reward_score", "from fractions import Fraction\ndef f(**kwargs):\n    return Fraction(1, 2)\n", "returns a Fraction"),
        ("rm_scores[-1] = reward_score", "import decimal\ndef f(**kwargs):\n    return {'score': decimal.Decimal(1)}\n", "score is a Decimal"),
        ("rm_scores[-1] = reward_score", "from fractions import Fraction\ndef f(**kwargs):\n    return float(Fraction(1, 2))\n", ""),
        ("rm_scores[-1] = reward_score", "from mine import Fraction\ndef f(**kwargs):\n    return Fraction(1, 2)\n", ""),
        ("torch.tensor(scores)", "from fractions import Fraction\ndef f(**kwargs):\n    return Fraction(1, 2)\n", ""),
    ],
)  # fmt: skip
def test_number_that_no_tensor_takes(tmp_path: Path, stores: str, code: str, problem: str) -> None:
    verl = tmp_path / "verl"
    for name, text in (
        ("trainer/ppo/reward", NEW),
        ("experimental/reward_loop/reward_manager/naive", THREAD),
        ("experimental/agent_loop/agent_loop", stores),
    ):
        (verl / name).parent.mkdir(parents=True, exist_ok=True)
        (verl / f"{name}.py").write_text(text, "utf-8")
    words = ("+custom_reward_function.name=f", "+trainer.use_v1=True")
    configuration = replace(configured(*words)[0], program=str(verl / "trainer/main_ppo.py"))
    found = list(own_reward.reward(configuration, "custom_reward_function", ast.parse(code)))
    assert [problem in text for text in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("code", "frequency", "found"),
    [
        ("def f(**kwargs):\n    return {'score': 1, 'more': {'length': 2}}\n", 1, True),
        ("def f(**kwargs):\n    result = {'score': 1, 'more': {}}\n    return result\n", 1, True),
        (
            "def f(**kwargs):\n    result = {'score': 1, 'more': {}}\n    del result['more']\n    return result\n",
            1,
            False,
        ),
        (
            "def f(**kwargs):\n    if kwargs:\n        return 0\n    return {'score': 1, 'more': {}}\n",
            1,
            False,
        ),
        ("def f(**kwargs):\n    return {'score': 1, 'more': [1]}\n", 1, False),
        ("def f(**kwargs):\n    return {'score': 1, 'more': {'length': 2}}\n", -1, False),
    ],
)
def test_details_of_which_a_validation_takes_the_mean(code: str, frequency: int, *, found: bool) -> None:
    words = (
        "+custom_reward_function.name=f",
        f"+trainer.test_freq={frequency}",
        "+trainer.val_before_train=False",
    )
    problems = own_reward.details(configured(*words)[0], "custom_reward_function", ast.parse(code))
    assert len(list(problems)) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:.|.|.|.|.|.|.|.|.|.|.|.|.|.|.|.)*Z",
        "(?:(?:(?:[a-z .]+)*)*)*X",
        "a{99999999999999999999}",
        "(" * 3000 + "a" + ")" * 3000,
    ],
)
def test_pattern_that_cannot_be_matched_here_decides_nothing(pattern: str) -> None:
    code = f"{FOUR}    m = re.search({pattern!r}, solution_str)\n    if m:\n        return 1.0\n"
    configuration = configured("+custom_reward_function.name=f")[0]
    assert list(own_reward.reward(configuration, "custom_reward_function", ast.parse(code))) == []
