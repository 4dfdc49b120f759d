"""Which source the options name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from verl_doctor.toolkit.cluster.examination import FactsFiles, OtherNodes
from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.engine.examination import OneMachine
from verl_doctor.toolkit.options.examination import are_several, source_of
from verl_doctor.toolkit.snapshot.examination import SnapshotFile


def test_each_option_names_its_source(tmp_path: Path) -> None:
    file, nodes = tmp_path / "one.json", RequestedNodes()
    assert source_of((), None) == OneMachine()
    assert source_of((), nodes) == OtherNodes(nodes)
    assert source_of((file,), None) == SnapshotFile(file)
    assert source_of((file,), None, with_kept_nodes=False) == OneMachine()
    assert source_of((file, file), None) == FactsFiles((file, file))
    assert source_of((tmp_path,), None) == FactsFiles((tmp_path,))


@pytest.mark.parametrize(
    ("names", "several"), [([], False), (["a"], False), (["a", "b"], True), (["."], True)]
)
def test_folder_or_two_files_count_as_several(tmp_path: Path, names: list[str], several: bool) -> None:
    assert are_several([tmp_path / name for name in names]) is several


@pytest.mark.slow
def test_local_examination_imports_no_cluster_modules() -> None:
    statement = (
        "import sys; from verl_doctor.toolkit.commands.check import command; "
        "command.source_of((), None); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "verl_doctor.toolkit.engine.examination" in loaded
    assert not {name for name in loaded if name.startswith("verl_doctor.toolkit.snapshot.")}
    few = {"verl_doctor.toolkit.cluster.node_request"}
    assert {name for name in loaded if name.startswith("verl_doctor.toolkit.cluster.")} == few
