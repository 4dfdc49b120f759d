"""One fault at a time on a recorded healthy H200 node: exactly the rule about it reports it."""

from __future__ import annotations

import pytest
from support.machine_facts import edited, healthy_node, judged
from support.machine_faults import FAULTS, TWO_NODES, Fault

_LONGEST = 210  # characters of a sentence


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_one_fault_is_one_finding(fault: Fault) -> None:
    results = judged(edited(fault.node(), fault.edits))
    reported = [(result.code, finding.message) for result in results for finding in result.findings]
    # The first is about the fault; a hint about another way to mend it may follow.
    assert {code for code, _ in reported} == {fault.code}
    assert [(result.code, result.reason) for result in results if result.status == "error"] == []
    message = reported[0][1]
    assert fault.words in message
    assert len(message) <= _LONGEST


def test_node_with_a_healthy_second_one_has_no_findings() -> None:
    """Otherwise a fault above could be found for another reason."""
    assert [result.code for result in judged(edited(healthy_node(), TWO_NODES)) if result.findings] == []
