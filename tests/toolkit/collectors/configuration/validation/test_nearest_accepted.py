"""The nearest value that verl's validating code accepts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.configuration.validation.nearest_accepted import with_nearest
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised
from verl_doctor.toolkit.collectors.launch.launch import Word

TREE = {
    "a": {
        "mode": "mean",
        "rank": 8,
        "mini": 4,
        "micro_size_per_gpu": None,
        "padded": True,
        "top": 1.0,
        "top_p": 1,
        "path": "",
        "pair": [0.9, 0.999],
        "kinds": [],
        "steps": None,
        "sections": {"b": {}},
    },
    "data": {"train_batch_size": 4},
}
SOURCE = """\
def check(self):
    modes = ["token-mean", "seq-mean"]
    if self.mode not in modes:
        raise ValueError("no such mode")
"""


def nearest(
    folder: Path, word: str, keys: tuple[str, ...], holds: Callable[[Configuration], bool], text: str = ""
) -> tuple[str, str]:
    source = folder / "check.py"
    source.write_text(SOURCE)
    there = with_overrides(
        Configuration("main_ppo.py", "/c", "ppo_trainer", before=TREE), [Word(word, "run.sh", 1)]
    )
    raised = Raised("ValueError", text, f"{source}:4", "", keys, "validation")
    found = with_nearest(raised, there, lambda changed: None if holds(changed) else raised)
    return found.nearest_key, found.nearest


@pytest.mark.parametrize(
    ("word", "keys", "holds", "text", "expected"),
    [
        ("a.mode=token_mean", ("a.mode",), lambda c: "-" in c.get("a.mode"), "", ("a.mode", "token-mean")),
        ("a.rank=1024", ("a.rank",), lambda c: c.get("a.rank") <= 512, "at most 512, not 1024", ("a.rank", "512")),
        ("a.rank=3", ("a.mini", "a.rank"), lambda c: c.get("a.mini") % c.get("a.rank") == 0, "", ("a.rank", "2")),
        ("a.padded=True", ("a.padded",), lambda c: c.get("a.padded") is False, "", ("a.padded", "False")),
        ("a.rank=4", ("a.rank", "a.micro_size_per_gpu"), lambda c: c.get("a.micro_size_per_gpu") == 1, "", ("a.micro_size_per_gpu", "1")),
        ("a.rank=0", ("a.rank", "a.mini"), lambda c: c.get("a.rank") >= c.get("a.mini"), "", ("a.rank", "4")),
        ("a.top=1.5", ("a.top",), lambda c: 0 < c.get("a.top") <= 1, "must be in (0, 1], got 1.5", ("a.top", "1.0")),
        ("a.top=95", ("a.top",), lambda c: 0 < c.get("a.top") <= 1, "must be in (0, 1], got 95", ("a.top", "0.95")),
        ("a.top_p=95", ("a.top_p",), lambda c: 0 < c.get("a.top_p") <= 1, "must be in (0, 1], got 95", ("a.top_p", "0.95")),
        ("a.rank=4", ("a.rank",), lambda c: False, "", ("", "")),
        ("a.rank=0.5", ("a.rank",), lambda c: type(c.get("a.rank")) is int, "", ("a.rank", "8")),
        ("a.steps=3", ("a.steps",), lambda c: isinstance(c.get("a.steps"), list), "", ("a.steps", "[3]")),
        ("a.path=/m/x/", ("a.path",), lambda c: not c.get("a.path").endswith("/"), "", ("a.path", "/m/x")),
        ("a.kinds=[rank,seq-men]", ("a.kinds",), lambda c: "seq-mean" in c.get("a.kinds"), "", ("a.kinds", "['rank', 'seq-mean']")),
        ("+a.betas=[0.9,1.0]", ("a.betas",), lambda c: not c.get("a.betas") or max(c.get("a.betas")) < 1, "", ("", "")),
        ("a.pair=[0.9,1.0]", ("a.pair",), lambda c: max(c.get("a.pair")) < 1, "", ("a.pair", "[0.9, 0.999]")),
        ("+a.mixed=bf16", ("a.mixed",), lambda c: not isinstance(c.get("a.mixed"), str), "", ("a.mixed", "null")),
        ("a.mode=half", ("a.mode",), lambda c: c.get("a.mode") == "mean", "", ("a.mode", "mean")),
        ("a.sections=null", ("a.sections",), lambda c: c.get("a.sections") is not None, "", ("a.sections", "{b:{}}")),
    ],
)  # fmt: skip
def test_nearest_accepted_value_is_suggested(
    tmp_path: Path,
    word: str,
    keys: tuple[str, ...],
    holds: Callable[[Configuration], bool],
    text: str,
    expected: tuple[str, str],
) -> None:
    assert nearest(tmp_path, word, keys, holds, text) == expected


def test_name_that_the_code_contains_is_not_misspelled(tmp_path: Path) -> None:
    """The condition around it is what fails."""
    source = tmp_path / "check.py"
    source.write_text(SOURCE.replace("mean", "max"))
    there = with_overrides(
        Configuration("main_ppo.py", "/c", "ppo_trainer", before=TREE),
        [Word("a.mode=seq-max", "run.sh", 1), Word("a.rank=2", "run.sh", 2)],
    )
    raised = Raised("ValueError", "", f"{source}:4", "", ("a.mode",), "validation", around=("a.rank",))

    def refuses(changed: Configuration) -> Raised | None:
        return raised if changed.get("a.rank") > 1 and changed.get("a.mode") == "seq-max" else None

    found = with_nearest(raised, there, refuses)
    assert (found.nearest_key, found.nearest) == ("a.rank", "1")


def test_value_of_the_wrong_type_is_judged_only_by_its_own_check() -> None:
    there = with_overrides(
        Configuration("main_ppo.py", "/c", "ppo_trainer", before=TREE), [Word("a.rank=two", "run.sh", 1)]
    )
    raised = Raised("TypeError", "", "/gone.py:4", "", ("a.rank",), "validation", around=("a.padded",))
    found = with_nearest(raised, there, lambda changed: raised if changed.get("a.padded") else None)
    assert found.nearest_key == ""


@pytest.mark.parametrize(
    ("condition", "expected"), [("self.rank == 0", ("a.rank", "0")), ("self.rank % 3 == 0", ("a.rank", "3"))]
)
def test_zero_is_suggested_where_the_code_compares_with_it(condition: str, expected: tuple[str, str]) -> None:
    there = with_overrides(
        Configuration("main_ppo.py", "/c", "ppo_trainer", before=TREE), [Word("a.rank=7", "run.sh", 1)]
    )
    raised = Raised("AssertionError", "", "/gone.py:4", condition, ("a.rank",), "validation")
    divisor = 3 if "%" in condition else 10**9
    found = with_nearest(raised, there, lambda changed: raised if changed.get("a.rank") % divisor else None)
    assert (found.nearest_key, found.nearest) == expected


def test_other_sizes_are_made_to_fit_the_batch() -> None:
    words = [Word("data.train_batch_size=2", "run.sh", 1), Word("a.rank=8", "run.sh", 2)]
    there = with_overrides(Configuration("main_ppo.py", "/c", "ppo_trainer", before=TREE), words)
    raised = Raised("ValueError", "2 of 8", "/gone.py:4", "", ("data.train_batch_size", "a.rank"), "workers")
    found = with_nearest(
        raised,
        there,
        lambda changed: raised if changed.get("data.train_batch_size") % changed.get("a.rank") else None,
    )
    assert (found.nearest_key, found.nearest) == ("a.rank", "2")
