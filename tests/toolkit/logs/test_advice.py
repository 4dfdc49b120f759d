"""What helps against an exception that no signature knows well: computed from what it names."""

from __future__ import annotations

from io import BytesIO

import pytest

from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.document import remedy_of
from verl_doctor.toolkit.logs.excerpt import excerpt

PACKAGES = "/venv/lib/python3.11/site-packages"


def remedy(error: str, *places: str, before: str = "") -> str:
    """What is said to help against an exception that was raised at these places, the deepest last."""
    frames = "".join(f'  File "{place}", line 12, in run\n    call()\n' for place in places)
    log = f"{before}Traceback (most recent call last):\n{frames}{error}\n"
    first = read(excerpt(BytesIO(log.encode()).read).lines, "run.log").first
    assert first is not None
    return remedy_of(first)


@pytest.mark.parametrize(
    ("error", "places", "said"),
    [
        (
            "ModuleNotFoundError: No module named 'timm'",
            ["/job/train.py", f"{PACKAGES}/transformers/models/a.py"],
            ["pip install timm", "transformers imports it"],
        ),
        (
            "ModuleNotFoundError: No module named 'cv2'",
            [f"{PACKAGES}/sampler/core.py"],
            ["pip install opencv-python-headless"],
        ),
        (
            "ModuleNotFoundError: No module named 'peft.tuners.newer'",
            [f"{PACKAGES}/art/server.py"],
            ["the installed peft has no module peft.tuners.newer", "art"],
        ),
        (
            "ModuleNotFoundError: No module named 'fused_things'",
            ["/src/vllm/model_executor/tuned.py"],
            ["what provides the module fused_things"],
        ),
        (
            "ModuleNotFoundError: No module named 'my_rewards'",
            ["/job/train.py"],
            ["PYTHONPATH", "my_rewards is imported by train.py:12"],
        ),
        (
            f"ImportError: cannot import name 'Old' from 'peft.tuners' ({PACKAGES}/peft/tuners/__init__.py)",
            [f"{PACKAGES}/art/server.py"],
            ["the installed peft has no Old, which art imports from peft.tuners", "pip show art"],
        ),
        (
            "TypeError: Trainer.__init__() got an unexpected keyword argument 'processing'",
            ["/job/a.py", f"{PACKAGES}/trl/trainer/grpo_trainer.py"],
            [
                "trl calls Trainer.__init__ of transformers",
                "Install the transformers that trl requires",
            ],
        ),
        (
            "TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items'",
            ["/job/a.py", f"{PACKAGES}/transformers/trainer.py"],
            ["Give the function a parameter num_items", "transformers"],
        ),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'top_q'",
            ["/job/a.py"],
            ["correct the call at a.py:12", "or install the trl that takes it"],
        ),
        (
            "AttributeError: module 'datasets' has no attribute 'load_it'",
            [f"{PACKAGES}/art/data.py"],
            ["has no load_it, which art uses", "print(datasets.__file__)"],
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/missing.idx'",
            [f"{PACKAGES}/art/data.py"],
            ["/data/missing.idx does not exist"],
        ),
        (
            "KeyError: 'reward_style'",
            [f"{PACKAGES}/verl/workers/reward_manager/naive.py"],
            ["the rows of the data have no reward_style", "data.train_files"],
        ),
    ],
)
def test_a_remedy_names_what_the_exception_names(error: str, places: list[str], said: list[str]) -> None:
    told = remedy(error, *places)
    assert [words for words in said if words not in told] == [], told


def test_a_release_that_the_log_tells_is_named() -> None:
    error = "ImportError: cannot import name 'Old' from 'peft.tuners' (/x/peft/tuners/__init__.py)"
    assert "the installed peft 0.14.0 has no Old" in remedy(
        error, f"{PACKAGES}/art/server.py", before="  + peft==0.14.0\n"
    )


def test_where_nothing_is_named_nothing_is_computed() -> None:
    told = remedy("RuntimeError: it does not work", f"{PACKAGES}/art/data.py")
    assert told.startswith("the exception states what is wrong")
