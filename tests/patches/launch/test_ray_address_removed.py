"""An address without a listening Ray is removed from the script or the shell."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.checks.ray.ray_address_leads_nowhere import ray_address_leads_nowhere
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.patches.launch.ray_address_removed import ray_address_removed
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, SetVariable
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.addresses import Place, RayAddresses
from verl_doctor.toolkit.marker import Marker


def plan(place: Place, path: str = "") -> list[Change] | Refusal:
    addresses = RayAddresses((place,))
    (finding,) = ray_address_leads_nowhere.judge(addresses)
    launch = Launch(((path, "shell script"),))
    return ray_address_removed.plan(
        finding, addresses=addresses, launch=launch, sources=SourceFiles(), marker=Marker()
    )


def test_exporting_line_is_commented_out(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("export RAY_ADDRESS=10.0.0.5:6379\npython3 -m verl.trainer.main_ppo\n")
    changes = plan(ray_place(reply="refused", path=str(script), line=1), str(script))
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, ReplaceFile)
    first, second = change.after.decode().splitlines()
    assert first.startswith("# export RAY_ADDRESS=10.0.0.5:6379")
    assert second == "python3 -m verl.trainer.main_ppo"


def test_shell_variable_is_unset() -> None:
    changes = plan(ray_place(reply="refused"))
    assert isinstance(changes, list)
    (change,) = changes
    assert isinstance(change, SetVariable)
    assert (change.name, change.value) == ("RAY_ADDRESS", None)


def test_line_with_other_effects_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("RAY_ADDRESS=10.0.0.5:6379 python3 -m verl.trainer.main_ppo\n")
    assert isinstance(plan(ray_place(reply="refused", path=str(script), line=1), str(script)), Refusal)
