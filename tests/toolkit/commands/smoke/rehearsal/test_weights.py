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


def test_tensors_that_differ_have_moved_and_those_in_the_rollout_arrived() -> None:
    told = [event("rollout weights", 0, "abc"), BEFORE, AFTER, event("rollout weights", 3, "xbq")]
    assert weights(told) == Weights(3, 2, 2, 1, 2)


def test_the_rollouts_weights_before_the_step_prove_nothing() -> None:
    assert weights([BEFORE, AFTER, event("rollout weights", 1.5, "xbz")]) == Weights(3, 2, 2, None)


def test_several_updates_count_from_the_first_to_the_last() -> None:
    told = [
        BEFORE,
        event("after update", 2, "xbc"),
        event("before update", 3, "xbc"),
        event("after update", 4, "xyz"),
    ]
    assert weights(told) == Weights(3, 3, 3, None)


def test_a_change_below_bfloat16_is_none_that_a_rollout_could_show() -> None:
    told = [BEFORE, event("after update", 2, "xyz", "abc"), event("rollout weights", 3, "abc")]
    assert weights(told) == Weights(3, 3, 0, 0)
    assert weights_wrong(weights(told), own_reward=True) is None


def test_tensors_that_the_rollout_has_in_other_pieces_are_new_there() -> None:
    loads = [event("rollout weights", 0, "pqr"), event("rollout weights", 3, "pst")]
    moved = weights([loads[0], BEFORE, AFTER, loads[1]])
    assert moved == Weights(3, 2, 2, 0, 2)
    assert weights_wrong(moved, own_reward=True) is None
    assert "2 tensors of the rollout are new since then" in describe_weights(moved, {})[1]


def test_a_rollout_that_has_what_it_had_got_nothing() -> None:
    loads = [event("rollout weights", 0, "pqr"), event("rollout weights", 3, "pqr")]
    wrong = weights_wrong(weights([loads[0], BEFORE, AFTER, loads[1]]), own_reward=True)
    assert wrong == ("the step moved 2 tensors, and none of them arrived in the rollout", "SMOKE158")


def test_without_a_step_nothing_is_known() -> None:
    assert weights([event("rollout weights", 0, "abc"), BEFORE]) is None


def test_numbers_are_those_of_the_last_step() -> None:
    log = (
        "(T pid=1) step:1 - actor/grad_norm:0.5 - timing_s/gen:9\n"
        "(T pid=1) step:2 - actor/grad_norm:1.25e-03 - num_turns/mean:np.float64(2.0) - actor/lr:nan\n"
    )
    found = metrics(log)
    assert found["actor/grad_norm"] == 0.00125
    assert found["num_turns/mean"] == 2.0
    assert "timing_s/gen" not in found


def test_a_log_without_a_step_has_no_numbers() -> None:
    assert metrics("Training Progress: 0%") == {}
