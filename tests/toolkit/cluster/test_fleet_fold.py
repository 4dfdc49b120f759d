"""Findings of many nodes are merged: differing amounts become a range, different causes stay separate."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest

from verl_doctor.toolkit.cluster.fleet_fold import folded, without_repeated
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Subject, SubjectKind
from verl_doctor.toolkit.system.node_names import expand

NAMES = [f"node{number}" for number in range(1, 200)]
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 200)]


def finding(message: str, found: str = "", read_from: str = "") -> Finding:
    return Finding(message, Evidence(found, "", read_from), severity="warning")


def folded_messages(*messages: str) -> list[tuple[str, str | None]]:
    """Merged findings for these messages, the first of node1, the second of node2..."""
    found: dict[Finding, list[int]] = {}
    for number, message in enumerate(messages):
        found.setdefault(finding(message), []).append(number)
    return [(finding.message, finding.node) for finding in folded(found, NAMES, ADDRESSES)]


@pytest.mark.parametrize(
    ("messages", "merged"),
    [
        (("981 MiB are free", "95.3 GiB are free", "2.0 GiB are free"), "981 MiB to 95.3 GiB are free"),
        (("100% full", "95% full"), "95% to 100% full"),
        (("1,024 of 4,096 threads", "4,000 of 4,096 threads"), "1,024 to 4,000 of 4,096 threads"),
        (("took 3.5 s", "took 12 s"), "took 3.5 s to 12 s"),
        (("the raylet (process 12) is slow", "the raylet (process 400) is slow"), "the raylet (process 12 to 400) is slow"),
        (("node1 resolves to 127.0.0.1", "node2 resolves to 127.0.0.1"), "<its name> resolves to 127.0.0.1"),
        (("nothing at 10.0.0.1:6379", "nothing at 10.0.0.2:6379"), "nothing at <its address>:6379"),
    ],
)  # fmt: skip
def test_findings_with_one_cause_are_merged_with_a_range(messages: tuple[str, ...], merged: str) -> None:
    assert folded_messages(*messages) == [(merged, f"node[1-{len(messages)}]")]


@pytest.mark.parametrize(
    "messages",
    [
        ("vLLM 0.10.2 is too old", "vLLM 0.11.0 is too old"),
        ("CUDA 12.8 is needed", "CUDA 13.0 is needed"),
        ("torch 2.10 is here", "torch 2.11 is here"),
        ("GPU 3 fell off the bus", "GPU 5 fell off the bus"),
        ("Xid 79 was logged", "Xid 48 was logged"),
        ("it ended with error 35", "it ended with error 802"),
        ("/scratch/v1 is full", "/scratch/v2 is full"),
        ("mlx5_0 is down", "mlx5_1 is down"),
        ("nothing at 10.9.0.1:6379", "nothing at 10.9.0.2:6379"),
    ],
)
def test_findings_with_different_causes_stay_separate(messages: tuple[str, str]) -> None:
    assert sorted(folded_messages(*messages)) == sorted(zip(messages, ("node1", "node2"), strict=True))


def test_message_from_a_single_node_keeps_its_text() -> None:
    assert folded_messages("node1 has 3 GiB free at 10.0.0.1") == [
        ("node1 has 3 GiB free at 10.0.0.1", "node1")
    ]


def test_several_findings_of_one_node_are_merged_with_a_range() -> None:
    found = {
        finding(f"the raylet (process {pid}) of node1 is slow", read_from=f"/proc/{pid}/limits"): [0]
        for pid in (12, 40)
    }
    (one,) = folded(found, NAMES, ADDRESSES)
    assert one.message == "the raylet (process 12 to 40) of node1 is slow"
    assert one.evidence.read_from == "/proc/12 to 40/limits"


def test_findings_with_different_severity_or_location_stay_separate() -> None:
    first = finding("disk has 1 GiB left")
    found: Mapping[Finding, Sequence[int]] = {
        first: [0],
        Finding("disk has 2 GiB left", Evidence(""), severity="error"): [1],
        Finding("disk has 3 GiB left", Evidence(""), Location("/x", 3), severity="warning"): [2],
    }
    assert len(folded(found, NAMES, ADDRESSES)) == 3


def test_number_of_merged_texts_is_bounded() -> None:
    chance = random.Random(7)
    texts = [
        f"GPU {chance.randrange(9)} of {chance.getrandbits(60):x} at v{number}.{number}"
        for number in range(150)
    ]
    words = ["".join(chance.choices("abcdefgh", k=8)) for _ in range(150)]
    for messages in (texts, words):
        found = folded({finding(text): [number] for number, text in enumerate(messages)}, NAMES, ADDRESSES)
        assert len(found) == 6
        assert {node for finding in found for node in expand(finding.node or "")} == set(NAMES[:150])
        assert "one of 145 similar findings" in found[0].evidence.found


def test_all_findings_of_a_single_node_are_reported() -> None:
    words = ["".join(letters) for letters in itertools.product("ab", repeat=4)]
    found = folded({finding(f"nobody reads {word}"): list(range(150)) for word in words}, NAMES, ADDRESSES)
    assert len(found) == 16


def test_order_does_not_matter() -> None:
    chance = random.Random(3)
    pairs = [(finding(f"{number % 7} GiB free on disk{number % 3}"), [number]) for number in range(40)]
    results = set()
    for _ in range(5):
        chance.shuffle(pairs)
        found: dict[Finding, list[int]] = {}
        for one, nodes in pairs:
            found.setdefault(one, []).extend(nodes)
        results.add(folded(found, NAMES, ADDRESSES))
    assert len(results) == 1


def test_findings_also_reported_by_other_nodes_are_left_out() -> None:
    here = [finding("3 GiB free"), finding("no verl is here")]
    assert without_repeated(here, [finding("17 GiB free")]) == (here[1],)


def about(name: str, kind: SubjectKind = "variable", message: str = "it is wrong") -> Finding:
    return Finding(message, Evidence("1 of 2"), severity="warning", subject=Subject(kind, name))


def test_merged_findings_keep_their_common_subject() -> None:
    gpus = {about(str(number), "device", f"{number} MiB are free"): [number] for number in range(3)}
    ((one,), (other,), (apart,)) = (
        folded(found, NAMES, ADDRESSES)
        for found in (
            {about("HF_HOME"): [0], about("HF_HOME", message="it is wrong"): [1]},
            gpus,
            {about("HF_HOME"): [0], about("NCCL_ALGO"): [1]},
        )
    )
    assert (one.subject, other.subject) == (Subject("variable", "HF_HOME"), Subject("device", "#"))
    assert apart.subject is None


def test_repeated_findings_are_recognised_by_subject() -> None:
    ours = about("HF_HOME"), about("NCCL_ALGO")
    theirs = (about("HF_HOME", message="in other words, on node7"),)
    assert without_repeated(ours, theirs) == ours[1:]
