"""Packages that transformers requires for quantized weights, read from sources of its shape."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verl_doctor.checks.shared.configuration import composed
from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.collectors.model.model import read_model
from verl_doctor.toolkit.collectors.model.quantizer import Quantizer, quantizer
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.target import Target

_AUTO = (
    'from .quantizer_awq import AwqQuantizer\nAUTO_QUANTIZER_MAPPING = {"awq": AwqQuantizer, "other": Gone}\n'
)
_AWQ = '''
class AwqQuantizer:
    def validate_environment(self, **kwargs):
        """The packages."""
        if not is_gptqmodel_available():
            raise ImportError("no gptqmodel")
        if not is_accelerate_available():
            raise ImportError("no accelerate")
        if not torch.cuda.is_available():
            raise RuntimeError("no GPU")
        if not is_optimum_available():
            raise ImportError("no optimum")
'''


def look(
    folder: Path,
    quantized: Any,
    *packages: str,
    strategy: str = "fsdp",
    program: str = "main_ppo",
    **model: Any,
) -> Quantizer | Absent:
    site = folder / "site"
    for name in ("torch", "transformers/quantizers", *packages):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    (site / "transformers/__init__.py").touch()
    (site / "transformers/quantizers/auto.py").write_text(_AUTO)
    (site / "transformers/quantizers/quantizer_awq.py").write_text(_AWQ)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "quantization_config": quantized}))
    python = replace(PYTHON, sys_path=(str(site),))
    target = Target(Path("/env/bin/python"), "--python")
    job = {"actor": {"strategy": strategy}, "model": model}
    configuration = replace(composed({"actor_rollout_ref": job}), program=program)
    found = quantizer.collect(read_model(folder, "--model"), target, python, configuration)
    assert isinstance(found, (Quantizer, Absent))
    return found


@pytest.mark.parametrize(
    ("method", "packages", "missing"),
    [
        ("awq", (), ("gptqmodel", "accelerate")),
        ("awq", ("accelerate",), ("gptqmodel",)),
        ("awq", ("accelerate", "gptqmodel"), ()),
        ("other", (), ()),
        ("unheard", (), ()),
    ],
)
def test_what_is_missing(
    tmp_path: Path, method: str, packages: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    found = look(tmp_path, {"quant_method": method}, *packages)
    assert isinstance(found, Quantizer)
    assert found.missing == missing


@pytest.mark.parametrize(
    ("quantized", "more"),
    [
        (None, {}),
        ({"quant_method": "awq"}, {"strategy": "megatron"}),
        ({"quant_method": "awq"}, {"external_lib": "mine"}),
        ({"quant_method": "awq"}, {"override_config": {"quantization_config": None}}),
    ],
)
def test_other_loaders_are_not_judged(tmp_path: Path, quantized: Any, more: dict[str, Any]) -> None:
    assert isinstance(look(tmp_path, quantized, **more), Absent)


def test_generation_by_an_engine_is_not_judged(tmp_path: Path) -> None:
    program = "/env/verl/trainer/main_generation_server.py"
    assert isinstance(look(tmp_path, {"quant_method": "awq"}, program=program), Absent)
