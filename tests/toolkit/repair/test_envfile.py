"""Entries of environment files: refusals, merging, and the effect of sourcing."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.change import SetVariable
from verl_doctor.toolkit.repair.envfile import SOURCED, Entry, Reason, entry, sourced, united, without
from verl_doctor.toolkit.system.errors import Refused

FILE = "/job/verl-doctor.env.sh"
LINK, NVCC = Reason("CUDA101", "libcuda-link", "one"), Reason("CUDA133", "cuda-home", "another")


def prepend(name: str, value: str, reason: Reason = LINK) -> Entry:
    return Entry(name, value, (reason,), prepend=True)


def test_reason_is_one_line_with_its_end() -> None:
    wanted = SetVariable(
        "OMP_NUM_THREADS", "8", "eight cores\n for each\tworker.", "the node has more cores."
    )
    (reason,) = entry(wanted, "HOST110", "threads").reasons
    assert str(reason) == "HOST110 threads: eight cores for each worker; needed until the node has more cores"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (SetVariable("A B", "1", ""), "cannot be set by a shell"),
        (SetVariable("A$(reboot)", "1", ""), "cannot be set by a shell"),
        (SetVariable("A\n", "1", ""), "cannot be set by a shell"),
        (SetVariable("A", "1\0", ""), "cannot be set by a shell"),
        (SetVariable("A", "", "", prepend=True), "cannot be set by a shell"),
        (SetVariable("HF_TOKEN", "x", ""), "may hold a secret"),
        (SetVariable("HF_TOKEN", None, ""), "may hold a secret"),
        (SetVariable("A", "hf_" + "a" * 34, ""), "may hold a secret"),
        (SetVariable("https_proxy", "http://me:pw@proxy:80", ""), "may hold a secret"),
        (SetVariable("https_proxy", "http://***@proxy:80", ""), "may hold a secret"),
    ],
)
def test_values_unsuitable_for_a_file_are_refused(wanted: SetVariable, message: str) -> None:
    with pytest.raises(Refused, match=message):
        entry(wanted, "ENV101", "fix")


def test_addresses_and_paths_are_not_secrets() -> None:
    for name, value in (("no_proxy", "10.0.0.1,@host,localhost"), ("LIBRARY_PATH", "/a:/b@c")):
        assert entry(SetVariable(name, value, ""), "NET113", "fix").value == value


def test_equal_entries_are_merged_with_both_reasons() -> None:
    both = united(Entry("A", "1", (LINK,)), Entry("A", "1", (NVCC,), node_only=True))
    assert both == Entry("A", "1", (LINK, NVCC), node_only=True)


def test_path_lists_are_merged() -> None:
    both = united(prepend("P", "/a:/b"), prepend("P", "/b:/c", NVCC))
    assert (both.value, both.reasons) == ("/a:/b:/c", (LINK, NVCC))


@pytest.mark.parametrize(
    "other", [Entry("A", "2", (NVCC,)), Entry("A", None, (NVCC,)), prepend("A", "1", NVCC)], ids=str
)
def test_conflicting_entries_are_refused_with_both_reasons(other: Entry) -> None:
    with pytest.raises(
        Refused, match=r"A=1 is required by CUDA101 libcuda-link: one but .* CUDA133 cuda-home"
    ):
        united(Entry("A", "1", (LINK,)), other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "/x"),
        ({"P": ""}, "/x"),
        ({"P": "/a"}, "/x:/a"),
        ({"P": "/x"}, "/x"),
        ({"P": "/x:/a"}, "/x:/a"),
        ({"P": "/a:/x"}, "/x:/a:/x"),
        ({"P": "/xy"}, "/x:/xy"),
    ],
    ids=str,
)
def test_folder_is_prepended_only_once(before: dict[str, str], after: str) -> None:
    once = sourced(before, [prepend("P", "/x")])
    assert once == {"P": after}
    assert sourced(once, [prepend("P", "/x")]) == once


ENTRIES = [
    Entry("SET", "1", (LINK,)),
    Entry("OTHER", "1", (LINK,), instead_of="0"),
    Entry("GONE", None, (LINK,), instead_of="a\nb"),
    prepend("P", "/x:/y"),
]


@pytest.mark.parametrize("path", ["", "/a:/b", "/x", None])
def test_effect_of_a_sourced_file_can_be_removed(path: str | None) -> None:
    before = {"OTHER": "0", "GONE": "a\nb", "HOME": "/home/me"} | ({} if path is None else {"P": path})
    during = {**sourced(before, ENTRIES), SOURCED: FILE}
    expected = before if path else {name: value for name, value in before.items() if name != "P"}
    assert without(during, ENTRIES, FILE) == expected


def test_environment_that_did_not_source_this_file_is_unchanged() -> None:
    for environ in ({"SET": "1"}, {"SET": "1", SOURCED: "/other/verl-doctor.env.sh"}):
        assert without(environ, ENTRIES, FILE) == environ


def test_variables_changed_after_sourcing_are_kept() -> None:
    environ = {SOURCED: FILE, "SET": "2", "GONE": "back", "P": "/b:/x:/y"}
    assert without(environ, ENTRIES, FILE) == {"SET": "2", "GONE": "back", "P": "/b:/x:/y"}
