"""The old workaround in a module of verl: its statement is removed, and all other bytes stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.patches.source.stubs_off_loader_path_in_source import stubs_off_loader_path_in_source
from verl_doctor.toolkit.change import Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.cuda.library_path import LibraryPath, library_path
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding, Location

STUBS = "/usr/local/cuda/lib64/stubs"
OLD = 'os.environ.get("LD_LIBRARY_PATH", "")'
BLOCK = f"""\
# Fix for Triton in rented containers  # Uky
import os
cuda_stubs = "{STUBS}"  # Uky
if os.path.exists(cuda_stubs):  # Uky
    old = {OLD}  # Uky
    if cuda_stubs not in old:  # Uky
        SETS
from vllm import LLM
"""


def planned(folder: Path, text: str) -> str:
    """The edited file, or the reason for a refusal."""
    path = folder / "vllm_rollout_spmd.py"
    path.write_text(text)
    finding = Finding("stubs", Evidence("stubs"), location=Location(str(path), 7))
    made = stubs_off_loader_path_in_source.plan(finding, SourceFiles(), Marker("verl-doctor"))
    if isinstance(made, Refusal):
        return made.reason
    (change,) = made
    assert isinstance(change, ReplaceFile)
    return change.after.decode()


@pytest.mark.parametrize(
    "statement",
    [
        'os.environ["LD_LIBRARY_PATH"] = f"{cuda_stubs}:{old}"  # Uky',
        'os.environ["LD_LIBRARY_PATH"] = cuda_stubs + ":" + old if old else cuda_stubs',
        'os.environ["LD_LIBRARY_PATH"] = ":".join([cuda_stubs, old])',
        f'os.environ["LD_LIBRARY_PATH"] = "{STUBS}:" + {OLD}',
        'os.environ.setdefault("LD_LIBRARY_PATH", cuda_stubs)',
        f'os.environ["LD_LIBRARY_PATH"] += ":{STUBS}/"',
    ],
)
def test_statement_is_removed_and_no_finding_remains(tmp_path: Path, statement: str) -> None:
    text = BLOCK.replace("SETS", statement)
    after = planned(tmp_path, text)
    mark = "# verl-doctor: ENV105"
    stays = "pass  # Uky" if "# Uky" in statement else "pass"
    assert after == text.replace(statement, f"# {statement}  {mark}\n        {stays}  {mark}")
    (tmp_path / "vllm_rollout_spmd.py").write_text(after)
    module = RolloutModule(str(tmp_path / "__init__.py"))
    assert library_path.collect(Variables({}), Absent(""), module) == LibraryPath()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            'os.environ["LD_LIBRARY_PATH"] = f"{cuda_stubs}:/srv/lib:{old}"',
            "adds /srv/lib to LD_LIBRARY_PATH too",
        ),
        ('os.environ["LD_LIBRARY_PATH"] = f"{cuda_stubs}:{site_of(old)}"', "adds an unknown value"),
        ('os.environ["LD_LIBRARY_PATH"] = cuda_stubs; print(old)', "other code on this line"),
    ],
)
def test_statement_with_other_effects_is_refused(tmp_path: Path, statement: str, reason: str) -> None:
    assert reason in planned(tmp_path, BLOCK.replace("SETS", statement))


def test_statement_without_stubs_is_kept(tmp_path: Path) -> None:
    text = BLOCK.replace(
        "SETS",
        f'os.environ["LD_LIBRARY_PATH"] = f"{{cuda_stubs}}:{{old}}"\n        os.environ["LD_LIBRARY_PATH"] = "/srv/lib:" + {OLD}',
    )
    after = planned(tmp_path, text)
    assert after.count("pass  # verl-doctor: ENV105") == 1
    assert f'        os.environ["LD_LIBRARY_PATH"] = "/srv/lib:" + {OLD}\n' in after
