"""Detached actors and placement groups in a real Ray: kept while a process may need them, then removed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from support.ray import head as ray_head
from support.ray.head import Head, head

from verl_doctor.toolkit.collectors.leftovers.actors import LeftActors
from verl_doctor.toolkit.collectors.ray import left_in_ray
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster, RayClusters
from verl_doctor.toolkit.commands.clean.actor import remove
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.leftover import KillActor
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options

pytestmark = [pytest.mark.real, pytest.mark.slow]

DRIVER = """
import sys, time, ray
from ray.util.placement_group import placement_group
ray.init(sys.argv[1], namespace="train", log_to_driver=False)
@ray.remote(num_cpus=0.1)
class Reward:
    def pid(self):
        import os
        return os.getpid()
for name in sys.argv[3:]:
    detached = Reward.options(name=name, lifetime="detached").remote()
    ray.get(detached.pid.remote())
own = Reward.options(name="own").remote()
ray.get(own.pid.remote())
if sys.argv[3:]:
    group = placement_group([{"CPU": 0.2}], name=sys.argv[3] + "-pool", lifetime="detached")
    ray.get(group.ready())
print("READY", flush=True)
time.sleep(float(sys.argv[2]))
"""


REWARD = f"reward-{os.getpid()}"
"""The name of the detached actor: another Ray of this machine may have such one, too."""


@pytest.fixture(scope="module")
def ray() -> Iterator[Head]:
    python = ray_head.environment() / "bin" / "python"
    with head(python, "", "--num-cpus=4") as running:
        yield running


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_in_ray, "YOUNG", 0.0)


@contextlib.contextmanager
def driver(ray: Head, *detached: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that has made these, and stays connected until it is ended."""
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(ray.folder),
        "HOME": str(ray.folder),
        "RAY_AUTH_MODE": "disabled",
    }
    process = subprocess.Popen(
        [ray.python, "-c", DRIVER, ray.address, "3600", *detached],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("READY"):
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def look(ray: Head) -> tuple[LeftActors, RayCluster]:
    """Leftovers in this Ray, and its whole GCS state."""
    facts = open_session(Options(python=ray.python, ray_address=ray.address)).look()
    left, clusters = facts.get(LeftActors), facts.get(RayClusters)
    assert isinstance(left, LeftActors)
    assert isinstance(clusters, RayClusters)
    (cluster,) = [cluster for cluster in clusters.clusters if cluster.address == ray.address]
    # Another Ray of this machine is ignored.
    found = [leftover for leftover in left.found if getattr(leftover.removal, "address", "") == ray.address]
    kept = [leftover for leftover in left.kept if leftover.name.startswith(REWARD)]
    return LeftActors(tuple(found), tuple(kept)), cluster


def soon(ray: Head, found: int) -> LeftActors:
    """Look until so many are left over: Ray learns of a driver's end after a moment."""
    for _ in range(120):
        left, _ = look(ray)
        if len(left.found) == found:
            return left
        time.sleep(0.5)
    raise AssertionError(f"left over: {left.found}, kept: {left.kept}")


def test_leftovers_of_a_killed_driver_are_removed_if_nothing_may_need_them(ray: Head) -> None:
    with driver(ray, REWARD) as made:
        left, _ = look(ray)
        assert (left.found, left.kept) == ((), ())  # its job runs
        made.send_signal(signal.SIGKILL)
        made.wait()
        left = soon(ray, 2)
        assert [leftover.kind for leftover in left.found] == ["actor", "placement group"]
        assert left.found[0].name == f"{REWARD} (Reward), holds 0.1 CPU"
        with driver(ray) as other:
            kept, _ = look(ray)
            assert kept.found == ()
            assert {leftover.why.partition(" (")[0] for leftover in kept.kept} == {
                "a driver is connected that may use it"
            }
            outcomes = list(remove(left.found, Machine()))
            assert {outcome.state for outcome in outcomes} == {"not removed"}
            assert all(
                f"(process {other.pid}) has connected meanwhile" in outcome.why for outcome in outcomes
            )
        left = soon(ray, 2)
        removal = left.found[0].removal
        assert isinstance(removal, KillActor)
        stranger = KillActor(removal.address, "session_of_another", removal.actor, removal.python)
        (refused,) = remove([type(left.found[0])("actor", "x", (), stranger)], Machine())
        assert "is now another cluster" in refused.why
        assert [(outcome.state, outcome.why) for outcome in remove(left.found, Machine())] == [
            ("removed", "")
        ] * 2
        for _ in range(120):
            left, cluster = look(ray)
            ended = all(job.finished for job in cluster.jobs) and all(
                actor.state == "DEAD" for actor in cluster.actors
            )
            if cluster.jobs and ended and not (left.found or left.kept):
                break
            time.sleep(0.5)
        assert (left.found, left.kept) == ((), ())
        assert {actor.state for actor in cluster.actors} == {"DEAD"}
        assert {group.state for group in cluster.groups} == {"REMOVED"}
        assert {job.namespace for job in cluster.jobs} == {"train", left_in_ray.CLEANER}
        assert all(job.finished for job in cluster.jobs)
