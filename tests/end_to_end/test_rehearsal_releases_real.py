"""Requirements of a rehearsal in released verl: a platform plugin, and a configuration that accepts every override."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.launch.launch import Command, Word
from verl_doctor.toolkit.commands.smoke.rehearsal import requirements as needs
from verl_doctor.toolkit.commands.smoke.rehearsal.overrides import words_for
from verl_doctor.toolkit.commands.smoke.rehearsal.verl import Names, Offer, offer_of
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.real

FILES = needs.Files(
    Path("/m odel"), (Path("/t.parquet"),), (Path("/v.parquet"),), Path("/own"), Path("/r'.py")
)
ANYWHERE = [*needs.sizes(own=True), *needs.files(FILES), *needs.without_flash_attention()]


def configured(verl: Path, *words: str) -> Configuration:
    command = Command(
        "verl.trainer.main_ppo", tuple(Word(text, "run.sh", 1, text) for text in words), "run.sh", 1
    )
    found = composed(command, verl, Machine(), "")
    assert isinstance(found, Configuration), found
    assert not found.refused
    return found


def unsaid(tree: Any, key: str = "") -> Iterator[str]:
    """Keys without a value: reading `???` stops the job."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from unsaid(value, f"{key}.{name}".lstrip("."))
    elif tree == "???":
        yield key


@pytest.mark.parametrize("release", ["0.9.0", "0.9.1"])
def test_recent_releases_support_the_platform_and_need_the_queue(
    release: str, wheel_tree: Callable[[str, str], Path]
) -> None:
    assert offer_of(wheel_tree("verl", release) / "verl") == Offer("", (), needs_queue=True)


@pytest.mark.parametrize("release", ["0.6.1", "0.8.0"])
def test_earlier_releases_do_not_support_the_platform(
    release: str, wheel_tree: Callable[[str, str], Path]
) -> None:
    offer = offer_of(wheel_tree("verl", release) / "verl")
    assert "no place for a platform" in offer.closed
    assert not offer.needs_queue


@pytest.mark.parametrize("release", ["0.4.1", "0.6.1", "0.8.0", "0.9.1"])
@pytest.mark.parametrize("more", [needs.on_gpu(own=True), needs.on_cpu(own=True)], ids=["gpu", "cpu"])
def test_each_override_is_accepted_by_the_release(
    release: str, more: list[needs.RequiredValue], wheel_tree: Callable[[str, str], Path]
) -> None:
    verl = wheel_tree("verl", release) / "verl"
    out = words_for(configured(verl), (), [*ANYWHERE, *more], Names(verl).__contains__)
    after = configured(verl, *out.words)
    assert {asked.fate for asked in after.overrides} == {"applied"}
    assert after.get("actor_rollout_ref.model.path") == "/m odel"
    assert after.get("trainer.total_training_steps") == 1
    assert set(unsaid(after.after)) <= {"reward.reward_model.rollout.name"}  # which is off
    path = next(
        key for key in ("reward.custom_reward_function.path", "custom_reward_function.path") if after.has(key)
    )
    assert after.get(path) == "/r'.py"
