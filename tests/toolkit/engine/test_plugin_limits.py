"""What a plug-in yields is read within its limits."""

from __future__ import annotations

import itertools

import pytest

from verl_doctor.toolkit.change import Refusal, fix
from verl_doctor.toolkit.engine.plugin_limits import PluginLimitError, limited
from verl_doctor.toolkit.rule import Finding


def test_plan_that_is_a_generator_is_read_and_counted() -> None:
    @fix("test-ends", repairs="PY101", safety="safe")
    def ends(finding: Finding) -> object:
        """Yields three."""
        return iter(range(3))

    @fix("test-endless", repairs="PY101", safety="safe")
    def endless(finding: Finding) -> object:
        """Yields without end."""
        return itertools.count()

    @fix("test-refuses", repairs="PY101", safety="safe")
    def refuses(finding: Finding) -> Refusal:
        """Refuses."""
        return Refusal("no")

    assert limited(ends).plan(None) == (0, 1, 2)
    assert limited(refuses).plan(None) == Refusal("no")
    with pytest.raises(PluginLimitError, match="more than 10,000 items"):
        limited(endless).plan(None)
