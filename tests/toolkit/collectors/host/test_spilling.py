"""Spilling folders configured for Ray, in Ray's order of precedence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.recorded import recorded

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.host.spilling import Spilling, spilling
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.facts import Absent, Unknown

FOLDER, CONFIG = "RAY_object_spilling_directory", "RAY_object_spilling_config"
DISK = {"type": "filesystem", "params": {"directory_path": "/disk"}}
RAYLET = Process(7, 1, "raylet", "raylet", True, 0.0)
NOBODY = Unknown("")


def spilling_of(
    root: Path,
    *settings: Setting,
    raylet: str = "",
    start: Mapping[str, str] | None = None,
    words: tuple[str, ...] = (),
    **variables: str,
) -> Spilling:
    running = Processes((RAYLET,)) if raylet else Processes(())
    machine = recorded(root, {"/proc/7/cmdline": raylet} if raylet else {}, HOME="/home/me")
    starts = RayStarts((RayStart("run.sh", 3, start),)) if start else NOBODY
    found = spilling.collect(
        machine,
        running,
        Launch((), settings) if settings else NOBODY,
        Variables(variables),
        starts,
        *(configured(*words) if words else (NOBODY,)),
    )
    assert isinstance(found, Spilling), found
    return found


def test_unknown_source(tmp_path: Path) -> None:
    found = spilling.collect(recorded(tmp_path, {}), Processes(()), NOBODY, Variables({}), NOBODY, NOBODY)
    assert isinstance(found, Absent)


def test_folder_option_beats_the_spilling_configuration(tmp_path: Path) -> None:
    start = {"system-config": json.dumps({"object_spilling_config": json.dumps(DISK)})}
    assert spilling_of(tmp_path, start=start).paths == ("/disk",)
    found = spilling_of(tmp_path, start=start, **{FOLDER: "/folder", CONFIG: "{}"})
    assert (found.paths, found.given_by) == (("/folder",), f"{FOLDER} of this shell")
    found = spilling_of(tmp_path, start={"object-spilling-directory": "~/spill"}, **{FOLDER: "/folder"})
    assert (found.paths, found.given_by) == (("/home/me/spill",), "ray start in run.sh:3")


def test_script_beats_the_shell(tmp_path: Path) -> None:
    found = spilling_of(tmp_path, Setting(FOLDER, "/script", "run.sh", 2), **{FOLDER: "/shell"})
    assert (found.paths, found.given_by) == (("/script",), f"{FOLDER} in run.sh:2")


def test_folder_passed_to_ray_by_verl_is_used(tmp_path: Path) -> None:
    word = "+ray_kwargs.ray_init.object_spilling_directory=/init"
    found = spilling_of(tmp_path, words=(word,))
    assert (found.paths, found.given_by) == (("/init",), "ray_kwargs.ray_init.object_spilling_directory")


def test_folders_from_other_sources_are_listed_as_further(tmp_path: Path) -> None:
    """A job that has ended may have spilled there."""
    script = Setting(FOLDER, "script", "run.sh", 2)
    found = spilling_of(
        tmp_path, script, start={"object-spilling-directory": "/start"}, **{CONFIG: json.dumps(DISK)}
    )
    assert (found.paths, found.further) == (("/start",), (str(Path.cwd() / "script"), "/disk"))
    perhaps = spilling_of(tmp_path / "2", replace(script, conditional=True))
    assert (perhaps.paths, perhaps.further) == ((), (str(Path.cwd() / "script"),))


def test_running_raylet_determines_the_folder(tmp_path: Path) -> None:
    found = spilling_of(tmp_path, raylet="raylet\0--fallback_directory=/old\0", **{FOLDER: "/new"})
    assert (found.paths, found.given_by) == (("/old",), "the raylet (process 7)")
    session = "raylet\0--fallback_directory=/tmp/ray/session_2026-11-21_10-00-00_000001_42\0"
    assert spilling_of(tmp_path / "2", raylet=session, **{FOLDER: "/new"}).paths == ("/new",)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ("{'type': 'filesystem'}", "it is not a JSON object"),
        ("[]", "it is not a JSON object"),
        ('{"params": {}}', 'it has no "type"'),
        ('{"type": "filesystem", "params": {"path": "/x"}}', 'it has no "directory_path" in "params"'),
        (
            '{"type": "filesystem", "params": {"directory_path": []}}',
            'it has no "directory_path" in "params"',
        ),
    ],
)
def test_invalid_configuration_is_reported(tmp_path: Path, config: str, wrong: str) -> None:
    assert spilling_of(tmp_path, **{CONFIG: config}).wrong == wrong


def test_several_folders_and_none(tmp_path: Path) -> None:
    several = {"type": "filesystem", "params": {"directory_path": ["/a", "/b"], "buffer_size": 1000}}
    assert spilling_of(tmp_path, **{CONFIG: json.dumps(several)}).paths == ("/a", "/b")
    bucket = {"type": "smart_open", "params": {"uri": "s3://bucket/spill"}}
    found = spilling_of(tmp_path, **{CONFIG: json.dumps(bucket)})
    assert (found.paths, found.storage, found.wrong) == ((), "smart_open", "")
