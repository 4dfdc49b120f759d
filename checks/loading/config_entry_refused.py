"""LOAD122: transformers or verl refuses an entry of the model's config.json."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.made_first import unless_installed
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.config_entries import BadEntry, ConfigEntries
from verl_doctor.toolkit.collectors.model.quantizer import Quantizer
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_FOLDER = "/models/qwen"
_LIBRARY = "/env/transformers"


_METHOD = "quantization_config.quant_method"
_AWQ = Quantizer(
    folder=_FOLDER,
    method="awq",
    missing=("gptqmodel",),
    read_from=f"{_LIBRARY}/quantizers/quantizer_awq.py:49",
)


def _with(*bad: BadEntry) -> tuple[ConfigEntries]:
    return (ConfigEntries(folder=_FOLDER, bad=bad),)


def _examples() -> list[Example]:
    return [
        Example("every entry is accepted", _with()),
        Example(
            "an activation that does not exist",
            _with(
                BadEntry(
                    name="hidden_act",
                    found="'silu2'",
                    wanted="one of gelu, silu ...",
                    read_from=f"{_LIBRARY}/activations.py:324",
                    nearest="silu",
                )
            ),
            "hidden_act is 'silu2', not one of gelu, silu ...; did you mean silu?",
        ),
        Example(
            "a text for a number",
            _with(
                BadEntry(
                    name="vocab_size",
                    found="'151936'",
                    wanted="int",
                    read_from=f"{_LIBRARY}/models/qwen2/configuration_qwen2.py:52",
                )
            ),
            "vocab_size is '151936', not int",
        ),
        Example(
            "an entry that is missing",
            _with(
                BadEntry(
                    name="model_type",
                    found="missing",
                    wanted="the type of the model",
                    read_from=f"{_LIBRARY}/models/auto/configuration_auto.py:9",
                )
            ),
            "model_type is missing",
        ),
        Example(
            "quantized, and the package is installed", (*_with(), Quantizer(folder=_FOLDER, method="awq"))
        ),
        Example(
            "quantized by a package that is missing",
            (*_with(), _AWQ),
            "quantization_config.quant_method is awq, but gptqmodel is not installed",
        ),
    ]


@check("LOAD122", phase="workers", requires={"LOAD101", "LOAD102"}, examples=_examples, since="0.2")
def config_entry_refused(
    entries: ConfigEntries | Unknown, quantizer: Quantizer | Unknown, launch: Launch | Unknown
) -> Iterator[Finding]:
    """transformers or verl refuses an entry of the model's config.json.

    ## Why it matters

    transformers 5 checks the type of each entry, the kinds and the number of layers, and what a scaling of
    positions needs when it reads the file; it looks activations up when it builds the model: `Validation
    error for field ...`, `KeyError: 'silu2'`. verl requires exactly one architecture. Every worker stops
    there, after Ray has started. Weights that are quantized need the package of their method.

    ## How to fix

    Correct the entry, or download the model's config.json again. A number is written without quotes; `1.0` is
    a float, `1` is not. verl trains all weights of a model: take one that is not quantized.
    """
    found = [] if isinstance(entries, Unknown) else [(entries.folder, bad) for bad in entries.bad]
    for folder, bad in found:
        what = "is missing" if bad.found == "missing" else f"is {bad.found}, not {bad.wanted}"
        near = f"; did you mean {bad.nearest}?" if bad.nearest else ""
        yield Finding(
            f"{folder}/config.json: {bad.name} {what}{near}",
            Evidence(bad.found, bad.wanted, bad.read_from),
            subject=Subject("model", folder, bad.name),
            location=Location(f"{folder}/config.json"),
            remedy=f"correct {bad.name} in config.json, or download the file again",
            stops=(EVERY_JOB,),
        )
    if not isinstance(quantizer, Unknown) and quantizer.missing:
        names = " and ".join(quantizer.missing)
        lacking = Finding(
            (
                f"{quantizer.folder}/config.json: {_METHOD} is {quantizer.method}, but {names} "
                f"{'are' if quantizer.missing[1:] else 'is'} not installed"
            ),
            Evidence(f"no {names}", "the package that reads these weights", quantizer.read_from),
            subject=Subject("model", quantizer.folder, _METHOD),
            location=Location(f"{quantizer.folder}/config.json"),
            remedy=f"use the model's weights that are not quantized, or install {names}",
            stops=(EVERY_JOB,),
        )
        yield unless_installed(lacking, launch)
