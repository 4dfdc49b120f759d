"""Composition and overrides as in Hydra. `test_hydra_real.py` compares with Hydra itself."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from verl_doctor.toolkit.sources.hydra.compose import Composed, Sources, compose
from verl_doctor.toolkit.sources.hydra.defaults import CompositionError, NotFollowedError
from verl_doctor.toolkit.sources.hydra.grammar import parse_override
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED, lookup

FILES = {
    "main": """\
        defaults:
          - engine_kind: dp
          - actor@job.actor: ${engine_kind}_actor
          - data@data: plain
          - optional extra: nothing
          - _self_
        job: {actor: {lr: 1e-6}, kept: 1}
        top: null
        copy: ${job.actor.lr}
        chosen: ${oc.select:job.missing,7}
        where: ${oc.env:HOME}
        """,
    "megatron_main": "defaults: [main, override engine_kind: megatron, _self_]\n",
    "engine_kind/dp": "# @package _global_\nkind: dp\n",
    "engine_kind/megatron": "# @package _global_\nkind: megatron\n",
    "actor/base": "lr: 1\nbase: true\noptim: {}\n",
    "actor/dp_actor": "defaults: [../optim@optim: adam, base, _self_]\nname: dp\n",
    "actor/megatron_actor": "defaults: [base, _self_]\nname: megatron\n",
    "optim/adam": "kind: adam\nrate: 1e-3\n",
    "optim/sgd": "kind: sgd\n",
    "data/plain": "files: [a, b]\n",
    "data/other": "files: c\n",
}


def composed(folder: Path, *overrides: str, name: str = "main") -> Composed:
    for path, text in FILES.items():
        file = folder / f"{path}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text))
    return compose(Sources([folder]), name, [parse_override(text) for text in overrides])


def test_files_are_merged_in_order(tmp_path: Path) -> None:
    assert composed(tmp_path).after == {
        "kind": "dp",
        "job": {
            "actor": {"optim": {"kind": "adam", "rate": 1e-3}, "lr": 1e-6, "base": True, "name": "dp"},
            "kept": 1,
        },
        "data": {"files": ["a", "b"]},
        "top": None,
        "copy": "${job.actor.lr}",
        "chosen": "${oc.select:job.missing,7}",
        "where": "${oc.env:HOME}",
    }


@pytest.mark.parametrize("how", ["in the file", "on the command line"])
def test_another_option_is_selected(how: str, tmp_path: Path) -> None:
    given = ["engine_kind=megatron"] if how == "on the command line" else []
    after = composed(tmp_path, *given, name="main" if given else "megatron_main").after
    assert (after["kind"], after["job"]["actor"]["name"]) == ("megatron", "megatron")


def test_groups_are_placed_in_other_packages(tmp_path: Path) -> None:
    assert composed(tmp_path, "data=other").after["data"] == {"files": "c"}
    assert composed(tmp_path, "+optim@mine.optim=sgd").after["mine"] == {"optim": {"kind": "sgd"}}
    assert composed(tmp_path, "~data").after.get("data") is None


def test_each_key_has_its_source_line(tmp_path: Path) -> None:
    origins = composed(tmp_path).origins
    assert origins["job.actor.name"] == f"{tmp_path / 'actor' / 'dp_actor.yaml'}:2"
    assert origins["job.actor.lr"] == f"{tmp_path / 'main.yaml'}:7"


@pytest.mark.parametrize(
    ("override", "outcome", "key", "value"),
    [
        ("job.kept=2", "applied", "job.kept", 2),
        ("job.new=2", "no such key", "job.new", MISSING),
        ("+job.new.deep=2", "applied", "job.new.deep", 2),
        ("++job.kept=2", "applied", "job.kept", 2),
        ("+job.kept=2", "already there", "job.kept", 1),
        ("+top=2", "applied", "top", 2),
        ("top.x=1", "no such key", "top", None),
        ("+top.x=1", "applied", "top.x", 1),
        ("~job.kept", "applied", "job.kept", MISSING),
        ("~job.kept=2", "nothing to delete", "job.kept", 1),
        ("~job.new", "nothing to delete", "job.new", MISSING),
        ("job.actor={lr: 3}", "applied", "job.actor.base", True),
        ("job.actor={new: 3}", "no such key", "job.actor.new", MISSING),
        ("+job.actor={new: 3}", "applied", "job.actor.new", 3),
        ("data.files.0=z", "applied", "data.files", ["z", "b"]),
        ("data.files=[]", "applied", "data.files", []),
        ("nothing@job=1", "no such group", "job.kept", 1),
    ],
)
def test_overrides(override: str, outcome: str, key: str, value: Any, tmp_path: Path) -> None:
    found = composed(tmp_path, override)
    assert found.outcomes == (outcome,)
    assert lookup(found.after, key) == value


def test_interpolations_are_followed_or_undetermined(tmp_path: Path) -> None:
    tree = composed(tmp_path, "job.actor.lr=2").after
    assert lookup(tree, "copy") == 2
    assert lookup(tree, "chosen") == 7
    assert lookup(tree, "where") is UNDETERMINED
    assert lookup({"files": "${own}", "own": [{"path": "a"}]}, "files.0.path") == "a"
    assert lookup({"files": ["a"]}, "files.1") is MISSING
    assert lookup({"a": "${.b}", "b": {"c": "${..d}"}, "d": 1}, "b.c") == 1
    assert lookup({"a": "${a}"}, "a") is UNDETERMINED


ACTOR = {"k": 1, "l": [1, 2]}


@pytest.mark.parametrize(
    ("overrides", "outcomes", "actor", "reference"),
    [
        (["ref.t.k=2"], ["no such key"], ACTOR, "${a.t}"),
        (["+ref.t.n=2"], ["applied"], ACTOR, {"n": 2}),
        (["+ref.t.k=2"], ["already there"], ACTOR, "${a.t}"),
        (["++ref.t.k=2"], ["applied"], ACTOR, {"k": 2}),
        (["++ref.t.x=2", "+ref.t.k=3"], ["applied", "applied"], ACTOR, {"x": 2, "k": 3}),
        (["++ref.t.x=2", "ref.t.x=3"], ["applied", "applied"], ACTOR, {"x": 3}),
        (["ref.t={n: 3}"], ["applied"], ACTOR, {"n": 3}),
        (["+ref.t={n: 3}"], ["applied"], ACTOR, {"n": 3}),
        (["++ref.t.l.0=5"], ["applied"], ACTOR, {"l": {"0": 5}}),
        (["~ref.t.k"], ["applied"], {"l": [1, 2]}, "${a.t}"),
    ],
)
def test_override_below_an_interpolation_gives_it_contents_of_its_own(
    overrides: list[str], outcomes: list[str], actor: Any, reference: Any, tmp_path: Path
) -> None:
    """The expected results are those of hydra-core 1.3.2 with omegaconf 2.3."""
    (tmp_path / "own.yaml").write_text("a: {t: {k: 1, l: [1, 2]}}\nref: {t: '${a.t}'}\n")
    found = compose(Sources([tmp_path]), "own", [parse_override(text) for text in overrides])
    assert list(found.outcomes) == outcomes
    assert found.after == {"a": {"t": actor}, "ref": {"t": reference}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("defaults: [missing]", "no `missing.yaml`"),
        ("defaults: [actor: '${unknown}']", "names no group"),
        ("defaults: [main2]", "includes itself"),
        ("defaults: {a: b}", "not a list"),
        ("a: 1\na: 2", "duplicate key"),
        ("a: [", "line 2"),
        ("defaults: [data: plain, data: other]", "several values"),
    ],
)
def test_invalid_compositions_are_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "main2.yaml").write_text(text)
    with pytest.raises(CompositionError, match=why):
        composed(tmp_path, name="main2")


def test_unfollowed_parts_are_reported(tmp_path: Path) -> None:
    (tmp_path / "main2.yaml").write_text("defaults: [data: '${oc.env:X}']")
    with pytest.raises(NotFollowedError, match=r"oc\.env"):
        composed(tmp_path, name="main2")


def test_missing_group_cannot_be_selected(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match=r"it has actor@job\.actor"):
        composed(tmp_path, "actor=dp_actor")


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("override hydra/job_logging: plain", ""),
        ("override hydra/job_logging: mine", ""),
        ("override hydra/launcher: basic", ""),
        ("override hydra/job_logging: colorlog", "no `hydra/job_logging=colorlog`"),
        ("override hydra/job_loging: plain", "the defaults list has no `hydra/job_loging`"),
    ],
)
def test_groups_of_hydra_itself(tmp_path: Path, line: str, refused: str) -> None:
    own, mine = tmp_path / "own", tmp_path / "mine"
    for file in (
        own / "hydra/job_logging/plain.yaml",
        mine / "hydra/job_logging/mine.yaml",
        mine / "job.yaml",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a: 1\n" if file.stem != "job" else f"defaults: [{line}, _self_]\nb: 2\n")
    if refused:
        with pytest.raises(CompositionError, match=refused):
            compose(Sources([mine], own=own), "job", [])
    else:
        assert compose(Sources([mine], own=own), "job", []).after == {"b": 2}
    if "loging" not in line:  # plugins may bring it
        assert compose(Sources([mine]), "job", []).after == {"b": 2}


def test_option_of_hydra_itself_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("b: 2\n")
    with pytest.raises(CompositionError, match="colorlog"):
        compose(Sources([tmp_path], own=tmp_path / "own"), "job", [], {"hydra/job_logging": "colorlog"})


def test_texts_in_texts_are_followed_so_far() -> None:
    """Each text names the one before it ten times: the last would have 10^20 characters."""
    tree = {"a0": "x" * 10} | {f"a{number}": f"${{a{number - 1}}}" * 10 for number in range(1, 21)}
    assert lookup(tree, "a2") == "x" * 1000
    assert lookup(tree, "a20") is UNDETERMINED
    assert all(lookup(tree, name) is UNDETERMINED or len(lookup(tree, name)) <= 100_000 for name in tree)


def test_texts_that_each_name_many_others_are_not_followed() -> None:
    names = [f"n{place}" for place in range(20)]
    tree = {"l0": dict.fromkeys(names, "x")} | {
        f"l{level}": dict.fromkeys(names, "".join(f"${{l{level - 1}.{name}}}" for name in names))
        for level in range(1, 12)
    }
    assert lookup(tree, "l11.n0") is UNDETERMINED
