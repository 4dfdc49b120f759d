"""The `runtime_env`: YAML for any value, and Ray's interpretation in a worker."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from verl_doctor.toolkit.repair.envfile import Entry, Reason
from verl_doctor.toolkit.repair.envfile_ray import left_out, written

REASON = Reason("CUDA101", "libcuda-link", 'it\'s "here": {a: b} # not a comment, `&x *y`')


def in_a_worker(text: str, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables as set by Ray in a process with this environment: expanded, with unset `${X}` left blank."""
    given_by_raylet = {name: os.environ[name] for name in ("PATH",)} | dict(environ)
    with monkeypatch.context() as patched:
        for name in list(os.environ):
            patched.delenv(name)
        for name, value in given_by_raylet.items():
            patched.setenv(name, value)
        pairs = yaml.safe_load(text)["env_vars"].items()
        return {name: re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value)) for name, value in pairs}


@pytest.mark.slow
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_any_value_is_a_yaml_string(value: str) -> None:
    text = written([Entry("A", value, (REASON,))], ())
    loaded = yaml.safe_load(text)["env_vars"]
    assert loaded == ({} if "$" in value and left_out(Entry("A", value, ())) else {"A": value})


@pytest.mark.parametrize(
    "value", ["0", "yes", "null", "1e3", "0x10", "~", "", "2026-11-21", "x" * 30_000, "\x7f\x85\u2028"]
)
def test_text_resembling_another_type_stays_text(value: str) -> None:
    assert yaml.safe_load(written([Entry("A", value, (REASON,))], ())) == {"env_vars": {"A": value}}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry("A", None, (REASON,)), "a runtime_env cannot remove a variable"),
        (Entry("A", "1", (REASON,), node_only=True), "another node may need another value"),
        (Entry("A", "$HOME/x", (REASON,)), "Ray would expand the part after a dollar sign"),
        (Entry("A", "${}", (REASON,)), "Ray would expand"),
        (Entry("A", "\udcff", (REASON,)), "it is not valid UTF-8"),
    ],
    ids=["unset", "node only", "dollar", "braces", "bytes"],
)
def test_unsupported_value_becomes_a_comment_with_the_reason(entry: Entry, why: str) -> None:
    text = written([entry, Entry("B", "1", (REASON,))], ())
    assert f"  # A is not here: {why}" in text
    assert yaml.safe_load(text) == {"env_vars": {"B": "1"}}
    assert yaml.safe_load(written([entry], ())) == {"env_vars": {}}


@pytest.mark.parametrize("value", ["5$", "a $ b", "$-x", "$$"])
def test_dollar_sign_without_a_name_is_kept(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_a_worker(written([Entry("A", value, (REASON,))], ()), {}, monkeypatch) == {"A": value}


def test_prepended_folder_comes_before_the_list_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written([Entry("LIBRARY_PATH", "/x", (REASON,), prepend=True)], {"LIBRARY_PATH"})
    assert in_a_worker(text, {"LIBRARY_PATH": "/a:/b"}, monkeypatch) == {"LIBRARY_PATH": "/x:/a:/b"}


def test_folder_replaces_a_missing_list() -> None:
    text = written([Entry("LIBRARY_PATH", "/x", (REASON,), prepend=True)], {"PATH"})
    assert yaml.safe_load(text) == {"env_vars": {"LIBRARY_PATH": "/x"}}


def test_every_variable_has_a_reason() -> None:
    both = (REASON, Reason("ENV101", "other", "second"))
    lines = written([Entry("A", "1", both)], ()).splitlines()
    assert [line.strip() for line in lines[-3:]] == [f"# {REASON}", "# ENV101 other: second", 'A: "1"']
