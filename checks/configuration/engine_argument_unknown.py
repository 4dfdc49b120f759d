"""CFG113: the launch script hands vLLM an engine argument that this vLLM does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from verl_doctor.checks.configuration._verl_keys import is_slip
from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.vllm.attention_requested import OPTIONS
from verl_doctor.toolkit.collectors.vllm.engine_arguments import SECTION, EngineArguments
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Subject, check

# ATT106 reports how to select a backend in a vLLM without these.
_OF_ATTENTION = frozenset(option.partition(".")[0] for option in OPTIONS)
_TAKEN = EngineArguments(
    version="0.12.0",
    names=("max_model_len", "model", "safetensors_load_strategy"),
    read_from="/env/vllm/engine/arg_utils.py",
    by_verl=("mine",),
)


def _irrelevant(configuration: Configuration) -> str | None:
    name = configuration.get("actor_rollout_ref.rollout.name")
    return None if name == "vllm" else f"actor_rollout_ref.rollout.name is {name!s}, not vllm"


def _examples() -> list[Example]:
    return [
        Example(
            "an argument that the engine has",
            (*configured(f"+{SECTION}.safetensors_load_strategy=prefetch"), _TAKEN),
        ),
        Example("an argument that verl itself uses", (*configured(f"+{SECTION}.mine=1"), _TAKEN)),
        Example("null is not handed on", (*configured(f"+{SECTION}.gone=null"), _TAKEN)),
        Example(
            "an attention backend, which another rule reports",
            (*configured(f"+{SECTION}.attention_backend=FLASH_ATTN"), _TAKEN),
        ),
        Example(
            "a typo", (*configured(f"+{SECTION}.max_modellen=4096"), _TAKEN), "did you mean max_model_len?"
        ),
        Example(
            "in a dictionary",
            (*configured(f"+{SECTION}={{gone: 1}}"), _TAKEN),
            "vLLM 0.12.0 has no engine argument gone",
        ),
    ]


@check("CFG113", phase="engine", applies=_irrelevant, examples=_examples)
def engine_argument_unknown(configuration: Configuration, arguments: EngineArguments) -> Iterator[Finding]:
    """The launch script passes vLLM an engine argument that this vLLM does not have.

    ## Why it matters
    Hydra accepts anything appended below `engine_kwargs.vllm`, and verl passes it on. vLLM refuses arguments
    that it does not have (`unexpected keyword argument`, `unrecognized arguments`), after Ray is up, on every
    rollout server.

    ## How to fix
    Use the name that this vLLM has, or remove the argument: vLLM renames and drops them between releases.
    """
    known = {*arguments.names, *arguments.by_verl, *_OF_ATTENTION}
    for word, name in _handed_on(configuration):
        if name.replace("-", "_") not in known:
            near = difflib.get_close_matches(name, arguments.names, 1)
            yield Finding(
                f"vLLM {arguments.version} has no engine argument {name}"
                + (f"; did you mean {near[0]}?" if near else ""),
                Evidence(found=word.text, wanted="a field of EngineArgs", read_from=arguments.read_from),
                location=place(word),
                remedy=f"write {near[0]} instead of {name}" if near else f"remove {name}",
                subject=Subject("setting", f"{SECTION}.{name}"),
                **healed("CFG113", _correction(word, name, near)),
            )


def _correction(word: OverrideWord, name: str, near: Sequence[str]) -> Correction | None:
    """The argument that was clearly meant; otherwise, remove the word.

    None for a word that sets more than this argument.
    """
    if word.key != f"{SECTION}.{name}":
        return None
    if near and is_slip(name, near[0]):
        return reworded(word, word.text.replace(f".{name}=", f".{near[0]}=", 1))
    return reworded(word, None, effect=f"vLLM has no {name}, so the engine runs without {word.text}")


def _handed_on(configuration: Configuration) -> Iterator[tuple[OverrideWord, str]]:
    """Yield the words that set something below the section, with its name there."""
    for word in configuration.overrides:
        if word.fate != "applied" or word.value is None or word.sign == "~":
            continue
        if word.key == SECTION and isinstance(word.value, dict):
            yield from ((word, name) for name, value in word.value.items() if value is not None)
        elif word.key.startswith(f"{SECTION}."):
            yield word, word.key.removeprefix(f"{SECTION}.").split(".")[0]
