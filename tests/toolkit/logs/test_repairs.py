"""What verl's releases have repaired, by function."""

from __future__ import annotations

from packaging.version import Version

from verl_doctor.toolkit.logs.python_errors import Frame
from verl_doctor.toolkit.logs.repairs import _repairs, repairs_of

METRICS = Frame("/w/verl/utils/debug/metrics.py", 92, "calculate_debug_metrics")


def test_every_repair_names_a_release_and_its_change() -> None:
    for name, found in _repairs().items():
        file, _, function = name.partition(":")
        assert file.endswith(".py")
        assert function.isidentifier()
        assert all(Version(release) and number > 0 for release, number in found)


def test_repair_is_found_by_the_file_and_the_function() -> None:
    assert [repair.number for repair in repairs_of(METRICS)] == [5860]
    assert not list(repairs_of(Frame("/w/job/metrics.py", 92, "score")))


def test_repair_of_another_file_or_of_one_of_several_functions_is_not_named() -> None:
    assert [
        repair.number for repair in repairs_of(Frame("/w/verl/workers/rollout/base.py", 30, "__init__"))
    ] == [4079]
    assert not list(repairs_of(Frame("/w/verl/workers/rollout/base.py", 30, "__init__"), "0.6.1"))
    assert not list(repairs_of(Frame("/w/verl/metrics.py", 92, METRICS.function)))
    assert not list(repairs_of(Frame("/w/verl/utils/debug/metrics.py.d/metrics.py", 92, METRICS.function)))


def test_repair_is_found_in_a_tree_of_verl_and_in_an_installed_one() -> None:
    for tree in ("/w/verl/verl", "/venv/lib/python3.11/site-packages/verl", "verl"):
        assert list(repairs_of(Frame(f"{tree}/utils/debug/metrics.py", 92, METRICS.function)))


def test_repair_of_an_older_release_does_not_count() -> None:
    assert list(repairs_of(METRICS, "0.7.1"))
    assert not list(repairs_of(METRICS, "0.8.0"))
    assert list(repairs_of(METRICS, "unknown"))
