"""Advice on classes that wrap or extend those of another package, and on code generated in place of them."""

from __future__ import annotations

import re

from verl_doctor.toolkit.logs.advice.places import Place
from verl_doctor.toolkit.logs.blame import package_of
from verl_doctor.toolkit.logs.packages import extended, owner_of
from verl_doctor.toolkit.logs.python_errors import Raised

_WRAPPER = re.compile(
    r"DistributedDataParallel|FullyShardedDataParallel|DataParallel|DeepSpeedEngine|OptimizedModule"
    r"|PeftModel\w*|AutoModelFor\w+WithValueHead|DDP|FSDPModule"
)

_OF_UNSLOTH = frozenset(
    {"save_pretrained_merged", "save_pretrained_gguf", "push_to_hub_merged", "push_to_hub_gguf"}
)


def of_wrapper(cls: str, name: str, place: Place) -> str:
    """Return advice on an attribute of a model that is looked up on what wraps the model."""
    if _WRAPPER.fullmatch(cls) is None:
        return ""
    user = place.words or "the caller"
    if name in _OF_UNSLOTH:
        return (
            f"{name} is a method of models that unsloth loaded (FastLanguageModel.from_pretrained), and "
            "this one was loaded otherwise: call model.merge_and_unload().save_pretrained(FOLDER) and "
            "tokenizer.save_pretrained(FOLDER), or save_pretrained alone for the adapter"
        )
    return (
        f"{cls} wraps the model, and {user} looks for {name} on the wrapper: use the model inside it "
        f"(model.module, accelerator.unwrap_model, get_base_model, pretrained_model), or pass {user} "
        "the plain model, such as AutoModelForCausalLM, if it wraps it by itself or needs no value head"
    )


def of_subclass(cls: str, name: str, place: Place) -> str:
    """Return advice on an attribute that a class expects of another package's class.

    It extends that class, or that class extends it.
    """
    if cls == "TrainingArguments" and place.package == "trl" and re.search(rf"\bargs\.{name}\b", place.code):
        return (
            "pass the trainer the configuration class of its own (SFTConfig, GRPOConfig, DPOConfig) instead "
            "of TrainingArguments, or install a trl before 0.9, which took these arguments by themselves"
        )
    base = extended(cls)
    owner = owner_of(base)
    if not owner or owner_of(cls) or not place.caller or not re.search(rf"\bself\.{name}\b", place.code):
        return ""
    if owner not in {place.package, place.caller} and base != "Trainer":
        return ""
    # The code of trl that reads an attribute of a trainer is that of the class which is extended, whatever
    # calls it.
    library = (
        place.package if ":" in place.caller or (place.package == "trl" and owner != "trl") else place.caller
    )
    return (
        f"{cls} extends a class of {library}, which sets or expects {name} in other releases: {cls} was "
        f"written for another {library}. Install the {library} that its project names (README, "
        f"requirements{'' if place.package in {'', library} else f', pip show {place.package}'}), or "
        f"set {name} in the constructor of {cls}"
    )


def generated(raised: Raised) -> str:
    """Return advice on code that a package wrote at run time over another's, as unsloth does trainers."""
    packages = [
        found
        for frame in raised.frames
        if (found := package_of(frame)) in {"transformers", "trl", "accelerate", "peft"}
    ]
    if raised.name != "NameError" or not packages or raised.frames[-1].path != "<string>":
        return ""
    return (
        f"code that another package generated in place of that of {packages[-1]} does not fit the "
        "installed release: install newer releases of that package (pip install -U unsloth "
        "unsloth_zoo), or the accelerate, trl and transformers from before the upgrade, and remove its "
        "cache (unsloth_compiled_cache)"
    )
