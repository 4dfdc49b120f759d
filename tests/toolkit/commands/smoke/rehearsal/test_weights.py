from __future__ import annotations

from typing import Any

from verl_doctor.toolkit.commands.smoke.rehearsal.weights import (
    Weights,
    describe_weights,
    metrics,
    weights,
    weights_wrong,
)


def event(name: str, at: float, exact: str, seen: str = "") -> dict[str, Any]:
    return {"event": name, "at": at, "exact": list(exact), "seen": list(seen or exact)}


BEFORE = event("before update", 1, "abc")
AFTER = event("after update", 2, "xbz")


def test_changed_tensors_are_matched_in_the_rollout() -> None:
    events = [event("rollout weights", 0, "abc"), BEFORE, AFTER, event("rollout weights", 3, "xbq")]
    assert weights(events) == Weights(3, 2, 2, 1, 2)


def test_rollout_weights_before_the_step_prove_nothing() -> None:
    assert weights([BEFORE, AFTER, event("rollout weights", 1.5, "xbz")]) == Weights(3, 2, 2, None)


def test_several_updates_are_compared_from_first_to_last() -> None:
    events = [
        BEFORE,
        event("after update", 2, "xbc"),
        event("before update", 3, "xbc"),
        event("after update", 4, "xyz"),
    ]
    assert weights(events) == Weights(3, 3, 3, None)


def test_change_below_bfloat16_precision_is_not_expected_in_the_rollout() -> None:
    events = [BEFORE, event("after update", 2, "xyz", "abc"), event("rollout weights", 3, "abc")]
    assert weights(events) == Weights(3, 3, 0, 0)
    assert weights_wrong(weights(events), own_reward=True) is None


def test_fused_tensors_of_the_rollout_count_as_changed() -> None:
    loads = [event("rollout weights", 0, "pqr"), event("rollout weights", 3, "pst")]
    moved = weights([loads[0], BEFORE, AFTER, loads[1]])
    assert moved == Weights(3, 2, 2, 0, 2)
    assert weights_wrong(moved, own_reward=True) is None
    assert "2 tensors of the rollout are new since then" in describe_weights(moved, {})[1]


def test_unchanged_rollout_is_a_failure() -> None:
    loads = [event("rollout weights", 0, "pqr"), event("rollout weights", 3, "pqr")]
    wrong = weights_wrong(weights([loads[0], BEFORE, AFTER, loads[1]]), own_reward=True)
    assert wrong == ("the step moved 2 tensors, and none of them arrived in the rollout", "SMOKE158")


def test_weights_are_unknown_without_a_step() -> None:
    assert weights([event("rollout weights", 0, "abc"), BEFORE]) is None


def test_metrics_come_from_the_last_step() -> None:
    log = (
        "(T pid=1) step:1 - actor/grad_norm:0.5 - timing_s/gen:9\n"
        "(T pid=1) step:2 - actor/grad_norm:1.25e-03 - num_turns/mean:np.float64(2.0) - actor/lr:nan\n"
    )
    found = metrics(log)
    assert found["actor/grad_norm"] == 0.00125
    assert found["num_turns/mean"] == 2.0
    assert "timing_s/gen" not in found


def test_log_without_a_step_has_no_metrics() -> None:
    assert metrics("Training Progress: 0%") == {}
