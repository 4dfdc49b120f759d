"""Constructors of data set classes against the arguments that verl passes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.own_data_set import constructor


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("self, files, tokenizer, config=None", ""),
        ("self, files, *args, tokenizer, **more", ""),
        ("self, data_files, tokenizer", "does not accept files"),
        ("self, files, tokenizer, extra", "requires extra"),
        ("self, *, files, tokenizer, extra", "requires extra"),
    ],
)
def test_constructor_of_a_data_set(tmp_path: Path, spec: str, problem: str) -> None:
    program = tmp_path / "sft_trainer.py"
    made = "    return dataset_cls(files=paths, tokenizer=tokenizer)\n"
    program.write_text(f"def create_sft_dataset(paths, tokenizer):\n{made}")
    tree = ast.parse(
        f"from torch.utils.data import Dataset\nclass Rows(Dataset):\n    def __init__({spec}):\n        pass\n"
    )
    found = list(constructor(tree, "Rows", program))
    assert [problem in words for words in found] == ([True] if problem else [])
    program.write_text("def create_sft_dataset(paths, **more):\n    return dataset_cls(paths, **more)\n")
    assert list(constructor(tree, "Rows", program)) == []


CLASS = "class Rows({}):\n    def __init__(self, other):\n        pass\n"


@pytest.mark.parametrize(
    ("code", "is_certain"),
    [
        ("import torch.utils.data as d\n" + CLASS.format("d.Dataset[int]"), True),
        ("from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset as Talks\n" + CLASS.format("Talks"), True),
        ("import torch\nclass Base(torch.utils.data.Dataset):\n    pass\n" + CLASS.format("Base"), True),
        (CLASS.format("Dataset"), False),
        ("from mine import Base\n" + CLASS.format("Base"), False),
        ("import torch\nfrom mine import Meta\nclass Base(torch.utils.data.Dataset, metaclass=Meta):\n    pass\n" + CLASS.format("Base"), False),
        ("import torch\nclass Base(torch.utils.data.Dataset):\n    def __init_subclass__(cls):\n        pass\n" + CLASS.format("Base"), False),
        ("try:\n    from torch.utils.data import Dataset\nexcept ImportError:\n    from mine import Dataset\n" + CLASS.format("Dataset"), False),
        *(
            (f"from torch.utils.data import Dataset\n{before}{CLASS.format('Dataset')}{after}", False)
            for before, after in (
                ("@bind\n", ""),
                ("", "Rows = bind(Rows)\n"),
                ("", "_Rows = Rows\nclass Rows(_Rows):\n    pass\n"),
                ("", "Rows.__init__ = Dataset.__init__\n"),
                ("", "setattr(Rows, '__init__', Dataset.__init__)\n"),
                ("", "bind(Rows)\n"),
                ("", "    def __new__(cls, **more):\n        return []\n"),
            )
        ),
    ],
)  # fmt: skip
def test_only_a_class_that_stays_as_written_is_judged(tmp_path: Path, code: str, *, is_certain: bool) -> None:
    program = tmp_path / "sft_trainer.py"
    program.write_text("def create_sft_dataset(paths):\n    return dataset_cls(files=paths)\n")
    assert bool(list(constructor(ast.parse(code), "Rows", program))) is is_certain
