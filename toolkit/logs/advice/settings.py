"""Advice on settings that the job lacks or leaves empty, and the names of verl's keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.logs.advice.demands import demanded
from verl_doctor.toolkit.logs.advice.places import LONGEST, MOST_FIELDS, Place, is_wordless, shown_at
from verl_doctor.toolkit.logs.asserted import chosen, in_words, operands
from verl_doctor.toolkit.logs.blame import own_frames, package_of, unset_settings
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import Raised, variable_read_at

_MANDATORY = re.compile(r"Missing mandatory value: ([\w.]+)")
_OVERRIDE = re.compile(
    r"(?<![\w.])\+{0,2}((?:actor_rollout_ref|data|trainer|algorithm|critic|reward|reward_model"
    r"|async_training|rollout|custom_reward_function)(?:\.\w+)+)="
)
# Arguments of engines, LoRA and Megatron, with verl's keys for them.
ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_SET_BY = {
    **dict.fromkeys(["gpu_memory_utilization", "mem_fraction_static"], f"{ROLLOUT}.gpu_memory_utilization"),
    **dict.fromkeys(["max_model_len", "context_length"], f"{ROLLOUT}.max_model_len"),
    **{
        name: f"{ROLLOUT}.{name}"
        for name in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "enforce_eager",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "load_format",
            "free_cache_engine",
            "disable_log_stats",
            "temperature",
            "top_p",
            "top_k",
        )
    },
    **dict.fromkeys(["tensor_parallel_size", "tp_size"], f"{ROLLOUT}.tensor_model_parallel_size"),
    "data_parallel_size": f"{ROLLOUT}.data_parallel_size",
    **{
        name: f"{_MODEL}.{name}"
        for name in (
            "target_modules",
            "exclude_modules",
            "lora_rank",
            "lora_alpha",
            "use_remove_padding",
            "trust_remote_code",
        )
    },
    "max_lora_rank": f"{_MODEL}.lora_rank",
    **dict.fromkeys(
        ["lr_decay_steps", "total_training_steps"],
        "actor_rollout_ref.actor.optim.total_training_steps (and actor.optim.lr_decay_steps)",
    ),
    "max_resp_len": (
        "+reward_model.reward_kwargs.max_resp_len (+reward.reward_kwargs.max_resp_len in newer releases), "
        "to be set to data.max_response_length"
    ),
    "attn_implementation": f"+{_MODEL}.override_config.attn_implementation",
    **{
        name: f"actor_rollout_ref.actor.megatron.{name}"
        for name in (
            "pipeline_model_parallel_size",
            "virtual_pipeline_model_parallel_size",
            "context_parallel_size",
            "expert_model_parallel_size",
            "expert_tensor_parallel_size",
            "sequence_parallel",
        )
    },
    **{
        name: f"+actor_rollout_ref.actor.megatron.override_transformer_config.{name}"
        for name in (
            "recompute_granularity",
            "recompute_method",
            "recompute_num_layers",
            "moe_grouped_gemm",
            "moe_token_dispatcher_type",
            "attention_backend",
        )
    },
}
# An argument of Megatron's TransformerConfig with its value, as its checks name them.
_MEGATRON = re.compile(r"\b([a-z]+(?:_[a-z0-9]+)+) ?==? ?['\"]?\w")
_NAME = re.compile(r"[a-z][a-z_0-9]{3,}")
_OPERAND = re.compile(
    r"unsupported operand type\(s\) for .*'NoneType'|not supported between instances of .*'NoneType'"
)
_ARGUMENTS = re.compile(r"\b(?:args|config|cfg|opts?|options|hparams)\.([a-z]\w*(?:\.[a-z]\w*)*)(?![\w.(])")
_EMPTY = re.compile(
    r"[Ii]nvalid (\w[\w ]*): (?:None|''|\"\")(?:, |\. ?)(?:[Ee]xpected|[Mm]ust be|[Ss]hould be) (.+)"
)
_UNREAD = re.compile(r"full_key: ([\w.]+)")


def of_variable(raised: Raised, place: Place) -> str:
    """Return advice on an environment variable whose value the line that raised the exception refuses."""
    if raised.name != "ValueError" or not (name := variable_read_at(place.code)):
        return ""
    return f"correct {name}, which {place.package or 'the job'} reads at {place.at}, or unset it"


def mandatory(raised: Raised) -> str:
    """Return advice on a key without a default that the job does not set."""
    if (found := _MANDATORY.search(raised.message)) is None:
        return ""
    whole = _UNREAD.search(raised.message)
    key = whole[1] if whole is not None and whole[1].endswith(f".{found[1]}") else found[1]
    value = "vllm (or sglang)" if key.endswith("rollout.name") else "VALUE"
    return f"add {key}={value} to the command: it has no default, and the job does not set it"


def unread(raised: Raised) -> str:
    """Return advice on a key that the code reads and the configuration of the job does not have."""
    found = _UNREAD.search(raised.message)
    if (
        found is None
        or not raised.name.endswith(("ConfigAttributeError", "ConfigKeyError"))
        or not own_frames(raised.frames)
    ):
        return ""
    reader = next(
        (
            frame
            for frame in reversed(own_frames(raised.frames))
            if package_of(frame) not in {"omegaconf", "hydra"}
        ),
        None,
    )
    at = f" at {shown_at(reader)}" if reader is not None else ""
    return (
        f"the code{at} uses {found[1]}, which the configuration of this job lacks: they are of "
        "different releases. Start from the YAML file of the release that runs, install the verl for "
        "which the recipe or script was made, or a newer verl if both are verl's own; or add the key "
        f"(+{found[1]}=VALUE)"
    )


def unset(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return advice on a setting that the job leaves empty."""
    if names := unset_settings(raised, lines):
        return (
            f"set {' and '.join(names)}, which is empty (null) although {place.at} computes with it; if the "
            "script passes a variable there, export it first"
        )
    if raised.name != "TypeError" or _OPERAND.search(raised.message) is None or not place.code:
        return ""
    used = dict.fromkeys(found[1] for found in _ARGUMENTS.finditer(place.code))
    given = " ".join(line.text for line in lines if "--" in line.text).replace("-", "_")
    unset = [name for name in used if f"__{name}" not in given][:MOST_FIELDS]
    if not unset:
        return ""
    options = ", ".join(f"--{name.replace('_', '-')}" for name in unset)
    which = f"one of {', '.join(unset)}" if len(unset) > 1 else unset[0]
    return (
        f"{which} is None although {place.at} computes with it: set it ({options}, or its key in the "
        f"configuration), or install a release of {place.package or 'the code'} that has a default for it"
    )


def of_empty(raised: Raised) -> str:
    """Return advice on a value that a message calls invalid because it is empty."""
    found = _EMPTY.search(raised.plain[:LONGEST])
    return f"set the {found[1]}, which is empty: {found[2].strip(' .')}" if found is not None else ""


def asserted(raised: Raised, place: Place, lines: Sequence[Line]) -> str:
    """Return the condition of an assertion in words, if it depends on settings of the job."""
    condition = in_words(place.code)
    if raised.name != "AssertionError" or not condition:
        return ""
    if place.package == "":
        return (
            (
                f"it checks that {condition}: look first at what sets these values (arguments, settings, "
                "data, the number of processes)"
            )
            if is_wordless(raised.message) and operands(place.code)
            else ""
        )
    is_explained = not is_wordless(raised.message) and bool(demanded(raised))
    if (only := chosen(place.code)) is not None and (key := _setting(only[0], place, lines)):
        return f"set {key}={only[1]}: {place.at} accepts nothing else"
    keys = {name: key for name in operands(place.code) if (key := _setting(name, place, lines))}
    is_choice = ", or " in condition and all(name.startswith("config.") for name in operands(place.code))
    if not keys or (is_explained and not is_choice):
        return ""
    plain = re.sub(r"\bconfig\.", "", condition)
    named = ", ".join(f"{name.rpartition('.')[2]} is {key}" for name, key in keys.items() if key not in plain)
    return f"choose the settings so that this holds: {plain}{f' ({named})' if named else ''}"


def _setting(name: str, place: Place, lines: Sequence[Line]) -> str:
    """Return the setting that a name in verl's code, or an argument of an engine, stands for, or ""."""
    path, dot, last = name.rpartition(".")
    if dot and path.startswith("config") and place.package == "verl":
        path = path.removeprefix("config").removeprefix(".")
        full = ".".join(filter(None, (path, last)))
        return next((key for key in given_keys(lines) if f".{key}".endswith(f".{full}")), full)
    given = next((key for key in given_keys(lines) if key.rpartition(".")[2] == last), "")
    return (_SET_BY.get(last, "") or given) if _runs_verl(place, lines) else ""


def given_keys(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the keys that the job's command sets."""
    return (found[1] for line in lines for found in _OVERRIDE.finditer(line.text))


def _runs_verl(place: Place, lines: Sequence[Line]) -> bool:
    return "verl" in {place.package, place.caller} or any("actor_rollout_ref." in line.text for line in lines)


def set_by(raised: Raised, lines: Sequence[Line]) -> dict[str, str]:
    """Return verl's keys for arguments that a message names, but not as such keys, if verl runs."""
    if not any("/verl/" in frame.path for frame in raised.frames) and not any(
        "actor_rollout_ref." in line.text for line in lines
    ):
        return {}
    text = raised.plain[:LONGEST]
    own = own_frames(raised.frames)
    if own and package_of(own[-1]) == "megatron" and (found := _MEGATRON.search(text)):
        return {found[1]: f"+actor_rollout_ref.actor.megatron.override_transformer_config.{found[1]}"}
    named = [name for name in _NAME.findall(text.replace("-", "_")) if name in _SET_BY]
    keys = {name: _SET_BY[name] for name in named if _SET_BY[name] not in text}
    return dict(list(keys.items())[:MOST_FIELDS])
