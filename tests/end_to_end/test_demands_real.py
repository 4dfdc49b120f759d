"""The demands that released verl makes, read from its wheels."""

from __future__ import annotations

import pytest
from support.wheels import tree

from verl_doctor.toolkit.collectors.configuration.demands import demands
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("release", "file"),
    [("0.4.1", "chat_scheduler.py"), ("0.5.0", "agent_loop.py"), ("0.6.1", "single_turn_agent_loop.py"), ("0.7.0", ""), ("0.9.1", "")],
)  # fmt: skip
def test_raw_messages_setting_follows_the_release(release: str, file: str) -> None:
    """Up to 0.6, an asynchronous rollout fails at its first batch unless data.return_raw_chat=True; 0.7 always adds the messages."""
    folder = tree("verl", release) / "verl"
    place = demands.collect(
        trees=VerlTrees(Tree(str(folder), "verl", release, "site-packages"), "it comes first")
    ).place("raw chat")
    assert place.rpartition("/")[2].partition(":")[0] == file
