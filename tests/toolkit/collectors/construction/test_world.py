"""The arithmetic of one rank."""

from __future__ import annotations

import dataclasses

import pytest

from verl_doctor.toolkit.collectors.construction.world import Engine, Share, World, read

ACTOR = Share("actor", "fsdp2", 8, 31, 100, 100, 200, 100, 30)
OFFLOADED = dataclasses.replace(ACTOR, weights_away="between", states_away="between")
AWAY = dataclasses.replace(ACTOR, weights_away="always", states_away="always")
REFERENCE = Share("reference", "fsdp2", 8, 31, 100, gathered=30, weights_away="always", states_away="always")
ENGINE = Engine("vllm", 2, 1, 400, 3, 10, 0.5, apart=False, sleeps=True)


@pytest.mark.parametrize(
    ("share", "working", "resident", "at_start"),
    [
        (ACTOR, 500, 300, 100),
        (OFFLOADED, 500, 0, 0),
        (AWAY, 30, 0, 0),
        (REFERENCE, 30, 0, 0),
        (dataclasses.replace(ACTOR, states=None), 300, 100, 100),
        (dataclasses.replace(ACTOR, gradients=0, temporary=0, states=0), 130, 100, 100),
    ],
)
def test_memory_by_phase(share: Share, working: int, resident: int, at_start: int) -> None:
    assert (share.working, share.resident, share.at_start) == (working, resident, at_start)


def test_other_models_stay_resident_while_one_works() -> None:
    critic = dataclasses.replace(ACTOR, name="critic")
    world = World(8, 1, "", (), (ACTOR, critic, REFERENCE), ENGINE)
    assert (world.resident, world.at_start) == (600, 200)
    assert [world.working(share) for share in world.shares] == [800, 800, 630]


@pytest.mark.parametrize(("change", "least"), [({}, 430), ({"token": None}, 400), ({"weights": None}, None)])
def test_engine_needs_its_weights_and_room_for_one_sequence(
    change: dict[str, None], least: int | None
) -> None:
    assert dataclasses.replace(ENGINE, **change).least == least  # type: ignore[arg-type]


def test_child_output_is_parsed() -> None:
    output = {
        "size": 8,
        "nodes": 1,
        "how": "verl",
        "meshes": [{"name": "actor", "dimensions": {"ddp": 2, "fsdp": 4}}],
        "shares": [dataclasses.asdict(ACTOR)],
        "engine": dataclasses.asdict(ENGINE),
    }
    world = read(output)
    assert world is not None
    assert [str(mesh) for mesh in world.meshes] == ["actor ddp 2 x fsdp 4"]
    assert (world.shares, world.engine) == ((ACTOR,), ENGINE)
    assert read(None) is None
