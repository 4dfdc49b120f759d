"""Node names as ranges, and back: nothing is lost, nothing is added, and a scheduler could read it."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_doctor.toolkit.system.node_names import expand, fold, shortened

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
NAMES = st.lists(
    st.lists(
        st.sampled_from(("a", "node", "-", ".", "_", "0", "00", "1", "7", "09", "10", "99", "100")),
        min_size=1,
        max_size=6,
    ).map("".join),
    min_size=1,
    max_size=30,
    unique=True,
)
# slurm.conf(5), NodeName: at most two numeric ranges, and if there are any, one at the end of the name.
SLURM = re.compile(r"[^\[\],]*(\[[0-9,-]+\][^\[\],]*)?(\[[0-9,-]+\])?")


@pytest.mark.slow
@UNHURRIED
@given(NAMES)
def test_folded_list_expands_to_the_same_names(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(names)


@pytest.mark.slow
@UNHURRIED
@given(NAMES, st.randoms())
def test_order_and_repetitions_do_not_matter(names: list[str], chance: random.Random) -> None:
    shuffled = [*names, *names]
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(names)


@pytest.mark.slow
@UNHURRIED
@given(NAMES)
def test_brackets_are_limited_to_those_that_slurm_reads(names: list[str]) -> None:
    folded = fold(names)
    items = re.findall(r"(?:\[[^\]]*\]|[^,\[])+", folded)
    assert all(SLURM.fullmatch(item) for item in items), folded


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["node7"], "node7"),
        ([f"node{n:03}" for n in (*range(1, 101), 107)], "node[001-100,107]"),
        ([f"n{n}" for n in (8, 9, 10, 11)], "n[8-11]"),
        (["n8", "n08", "n9", "n09", "n10"], "n[8-10,08-09]"),
        ([f"10.0.3.{n}" for n in range(1, 40)] + ["10.0.4.7"], "10.0.3.[1-39],10.0.4.7"),
        ([f"10.0.{a}.{b}" for a in range(4) for b in range(256)], "10.0.[0-3].[0-255]"),
        ([f"rack{r}-node{n}" for r in range(3) for n in range(4)], "rack[0-2]-node[0-3]"),
        (["node1-ib0", "node2-ib0", "node5-ib0"], "node[1-2,5]-ib[0]"),
        (["gpu-h100-07", "gpu-h100-08", "gpu-h200-08"], "gpu-h100-[07-08],gpu-h200-08"),
        (["node1.example.com", "node2.example.com"], "node[1-2].example.com"),
        (["fd00::1", "fd00::2"], "fd00::1,fd00::2"),
        (["worker-x7k2p", "worker-9qq"], "worker-9qq,worker-x7k2p"),
        ([], ""),
    ],
)  # fmt: skip
def test_names_are_folded_naturally(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize("text", ["node[1-]", "node[a-b]", "node[]"])
def test_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of numbers"):
        expand(text)


@pytest.mark.parametrize("text", ["node[5-1]", "node[1-3,7-5]"])
def test_descending_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="counts backwards"):
        expand(text)


@pytest.mark.parametrize("text", ["[1-", "gpu[1-3", "gpu1-3]", "a[1],b[[2]"])
def test_unmatched_bracket_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unmatched bracket|not a list of numbers"):
        expand(text)


@pytest.mark.parametrize("text", ["node[1-9999999999]", "a[1-1000]b[1-1000]", "a[1-60000],b[1-60000]"])
def test_list_with_too_many_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 100,000 names"):
        expand(text)


def test_long_list_is_shortened_and_counted() -> None:
    names = [f"worker-{word}" for word in ("abc", "bcd", "cde") * 30]
    names = [f"{name}x{'y' * index}" for index, name in enumerate(names)]
    line = shortened(fold(names), len(names))
    assert line.endswith(" and others, 90 in all")
    assert len(line) < 200
    assert shortened("node[1-4]", 4) == "node[1-4]"
