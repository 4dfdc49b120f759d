"""Faults of released packages, and the releases that have a name."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet

from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.python_errors import Frame, Raised
from verl_doctor.toolkit.logs.releases import (
    Fault,
    _faults,
    _members,
    _names,
    before,
    bounds_of,
    fault_of,
    has_fault,
    instead_of,
    members_of,
    owners_of,
    parameters_of,
)


def raised(words: str, path: str) -> Raised:
    name, _, message = words.partition(": ")
    return Raised(name, message, next(iter(log_lines(words))), 1, frames=(Frame(path, 1),))


@pytest.mark.parametrize("fault", _faults(), ids=lambda fault: f"{fault.package}-{fault.sources[0]}")
def test_fault_names_releases_and_its_source(fault: Fault) -> None:
    assert str(SpecifierSet(fault.without))
    assert fault.sources
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source) for source in fault.sources)
    text = "4".join(fault.texts[0])
    words = text if re.match(r"\w+Error: ", text) else f"AttributeError: {text}"
    assert fault_of(raised(words, f"/x/{fault.place or 'a.py'}")) is not None


def test_fault_belongs_to_its_place() -> None:
    assert fault_of(raised("KeyError: 'lm_head.weight'", "/x/sglang/srt/models/llama.py")) is None


def test_release_decides_whether_it_has_a_fault() -> None:
    fault = Fault("vllm", ">=0.9", (("x",),), instead="do something else")
    assert has_fault(fault, "0.8.5.post1")
    assert not has_fault(fault, "0.9.0")
    assert has_fault(fault, "unreadable")
    assert instead_of(fault, "0.8.5").startswith(
        "vllm 0.8.5 has this fault, >=0.9 does not: pip install 'vllm>=0.9'"
    )
    assert instead_of(fault, "").startswith(
        "unless the installed vllm is >=0.9 (pip show vllm), pip install 'vllm>=0.9'"
    )
    assert instead_of(fault, "").endswith("; or do something else")


def test_names_have_bounds_that_pip_accepts() -> None:
    every = [
        limits for modules in _names().values() for names in modules.values() for limits in names.values()
    ]
    assert len(every) > 500
    assert all(str(SpecifierSet(limits)) for limits in every)


@pytest.mark.parametrize(
    ("module", "name", "bounds"),
    [
        ("transformers", "AutoModelForVision2Seq", "<5.0"),
        ("trl", "GRPOTrainer", ">=0.14"),
        ("huggingface_hub", "cached_download", "<0.26"),
        ("vllm.model_executor.sampling_metadata", "", "<=0.10.2"),
        ("vllm", "LLM", ""),
        ("unheard_of", "x", ""),
    ],
)
def test_bounds_of_names(module: str, name: str, bounds: str) -> None:
    assert bounds_of(module, name) == bounds


def test_owner_of_a_name_is_found_without_its_module() -> None:
    assert list(owners_of("ParallelismConfig")) == [("accelerate", ">=1.10")]
    assert list(owners_of("unheard_of")) == []


def test_members_have_bounds_that_pip_accepts() -> None:
    every = [
        limits for classes in _members().values() for names in classes.values() for limits in names.values()
    ]
    assert len(every) > 3000
    assert all(str(SpecifierSet(limits)) for limits in set(every))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (members_of("GRPOConfig", "num_iterations"), {"trl": ">=0.16"}),
        (members_of("GRPOConfig", "beta"), {}),
        (members_of("Unheard", "num_iterations"), {}),
        (parameters_of("LoraConfig", "use_dora"), {"peft": ">=0.9"}),
        (parameters_of("SFTTrainer", "packing"), {"trl": "<0.13"}),
        (parameters_of("flash_attn_varlen_func", "deterministic"), {"flash_attn": ">=2.4"}),
    ],
)
def test_bounds_of_members_and_parameters(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(("limits", "earlier"), [(">=0.16", "<0.16"), ("<0.16", ""), (">=0.9,<0.16", "")])
def test_releases_before(limits: str, earlier: str) -> None:
    assert before(limits) == earlier
