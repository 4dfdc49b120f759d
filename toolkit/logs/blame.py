"""Assigns exceptions without a signature to what is to blame.

That is the job's code, its configuration, its launch script, or a refusing program.

The exception itself is the cause. The job's code raised it if the deepest place outside the standard library
and installed packages is in a file of the job. The configuration is at fault if the message, or the source
line that raised it, names a setting of the job, a setting's value, or a key of verl's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import OVERRIDES, Frame, Raised
from verl_doctor.toolkit.rule import Phase

Fault = Literal["configuration", "code", "launch", "program"]

_CODES: dict[Fault, str] = {
    "configuration": "LOG160",
    "code": "LOG161",
    "launch": "LOG162",
    "program": "LOG163",
}
"""The codes for which `explain` has a page. Their signatures have no texts."""

_NAMES = (
    r"verl|vllm|sglang|ray|torch|torchdata|hydra|omegaconf|transformers|peft|datasets|pyarrow|pandas|numpy"
    r"|tensordict|accelerate|huggingface_hub|wandb|tqdm|pydantic|triton|flash_attn|deepspeed|megatron|uvloop"
    r"|trl|openrlhf|slime|skyrl_train|skyrl_gym|rllm|prime_rl|areal|roll|llamafactory|llmtuner|swift|nemo_rl"
    r"|torchtitan|unsloth|unsloth_zoo|mbridge|mcore_bridge|mindspeed|torch_npu|vllm_ascend|flashinfer|fla"
    r"|lightning|axolotl|lmcache|rlinf|verifiers|xtuner|unsloth_compiled_cache|transformers_modules"
    r"|vllm_omni|vllm_gaudi|vllm_spyre|vllm_rbln|vllm_metal|vllm_neuron|vllm_xpu|verl_omni|verl_tool"
    r"|lmdeploy|tensorrt_llm|torchtune|nemo_automodel|nemo_gym|miles|siirl|cosmos_rl|open_instruct"
    r"|agentlightning|sglang_router|bitsandbytes|xformers|liger_kernel|mindspeed_llm|mindspeed_mm"
    r"|mindspeed_rl|MindSpeed|MindSpeed-LLM|MindSpeed-MM|MindSpeed-RL|Megatron-LM|Megatron-Bridge"
    r"|TransformerEngine|LLaMA-Factory|LlamaFactory|ms-swift|diffusers|optimum|lerobot|torchao|torchvision"
    r"|torchaudio|timm|llmcompressor|compressed_tensors|fairseq|colossalai|xgrammar|mcore_adapter|chatlearn"
)
REMOTE_CODE = "transformers_modules"
"""The package in which transformers puts the code that a model brings with it."""
KNOWN = frozenset(_NAMES.split("|"))
"""The projects whose source trees are not the job's own code."""
# The home of Ray's images and the folder of its sessions are no source tree of Ray.
_TREE = rf"(?:^|/)(?!(?<=/home/)ray/|(?<=/tmp/)ray/)({_NAMES})/"
_INSTALLED = re.compile(
    rf"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<|\.py[xi]$|\.pxi$|{_TREE}|/bin/[\w-]+$"
)
# Paths inside the package itself, in a checkout of the same name.
_OF_VERL = re.compile(
    r"(?:trainer|workers|utils|single_controller|experimental|models|model_merger|tools|third_party|interactions|checkpoint_engine|plugin)/|(?:protocol|base_config|__init__)\.py|"
    # what verl's own recipes bring; a job keeps its rewards beside it
    r"recipe/(?P<recipe>char_count|collabllm|dapo|deepeyes|entropy|fapo|flowrl|fully_async_policy|genrm_remote|gkd|langgraph_agent|one_step_off_policy|prime|r1|retool|spin|sppo|transfer_queue)/"
    r"(?:(?P=recipe)|main_\w+|\w*(?:ray_trainer|fsdp_workers?|megatron_workers?))\.py|"
    r"scripts/(?:(?:legacy_)?model_merger|converter_hf_to_mcore|megatron_merge_lora)\.py"
)
STANDARD = re.compile(
    r"/lib/python3[^/]*/(?!(?:site|dist)-packages/)|^<|^(?:\w+/.*|\w+)\.py[xi]$|\.pxi$|"
    # modules that only forward calls
    r"/torch/(?:nn/modules/module|utils/_contextlib|_dynamo/eval_frame|_ops)\.py$"
)
_NOT_FORWARDED = frozenset({"load_state_dict", "_load_from_state_dict"})
"""Functions of these modules that do something of their own."""
# Folders of generated code and of source trees, with the package that they belong to.
_FOLDERS = {
    "unsloth_compiled_cache": "unsloth",
    "MindSpeed": "mindspeed",
    "MindSpeed-LLM": "mindspeed_llm",
    "MindSpeed-MM": "mindspeed_mm",
    "MindSpeed-RL": "mindspeed_rl",
    "Megatron-LM": "megatron",
    "Megatron-Bridge": "megatron",
    "TransformerEngine": "transformer_engine",
    "LLaMA-Factory": "llamafactory",
    "LlamaFactory": "llamafactory",
    "ms-swift": "swift",
}
_OF_SITE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_PACKAGE = re.compile(_TREE)
# A known project's tree, which may lie in the tree of another one: /rllm/verl/verl/utils.
_NESTED = re.compile(rf"(?<=/)({_NAMES})/\1/")
# The folder of a project that contains a package of the same name: what lies below it belongs to that
# package.
_PROJECT = re.compile(
    r"/(?!data/|home/|src/|work|app/|code/|mnt/|root/|opt/|tmp/|usr/|models?/|python/)([A-Za-z][\w-]+)/\1/"
)
_ANNOUNCED = re.compile(
    r"not (?:be )?(?:installed|found|available|import)|[Pp]lease install|pip3? install|No module named"
)
_KEY = re.compile(
    r"(?<![\w/.-])(?:actor_rollout_ref|data|trainer|algorithm|critic|reward|reward_model"
    r"|custom_reward_function|ray_kwargs|model|optim|engine|checkpoint|profiler|global_profiler)(?!\."
    r"(?:batch|non_tensor_batch|meta_info)\b)(?:\.[A-Za-z_]\w*)+(?![\w(/[]|\.\d)"
)
_OF_CONFIG = re.compile(r"\bconfig\.([a-z_]\w*(?:\.[a-z_]\w*)*)(?![\w.(])")
_IN_CODE = re.compile(
    r"\bconfig\.((?:actor_rollout_ref|data|trainer|algorithm|critic|reward_model|custom_reward_function)"
    r"(?:\.[a-z_]\w*)+)(?![\w(])"
)
_FULL_KEY = re.compile(
    r"[Nn]ode `([\w.]+)` is not a container|^Could not override '([\w.@/]+)'|argument '([\w.]+)=|error: "
    r"(?:argument|unrecognized arguments:) (--?[\w-]+)|full_key: ([\w.]+)|You must specify '("
    r"[\w.@/]+)', e\.g"
)
_OF_KEYS = "omegaconf.errors."  # what it raises names a key, wherever that is read
_PATH = re.compile(r"(?<![\w/.:])(/[\w.+@%=-]+(?:/[\w.+@%=-]+)+)")
_OF_CPP = re.compile(r"\.(?:cpp|cc|cuh?|hpp|h)$")  # source files, whose place a message states
_WORD = re.compile(r"[A-Za-z_]\w{4,}")
# Places in libraries that only look up what the place before them requests.
_LOOKS_UP = re.compile(r"__getitem__$|_?get_(?:tuple|str|loc|indexer\w*)$|_default_get$|_raise_if_missing$")
_LOOKED_UP_IN = re.compile(r"/(?:tensordict|pandas|datasets/formatting)/")
_ABSENT_COMMAND = re.compile(r"(?<![\w/.-])([\w.+-]+): (?:command )?not found\b")
_OF_EMPTY = re.compile(
    r"unsupported operand type\(s\) for .*'str'|not supported between instances of .*'str'"
    r"|invalid literal for int\(\) with base 10: ''|could not convert string to float: ''"
)
# The source of a model that a project has copied from transformers.
_COPIED = re.compile(r"(?:^|/)modeling_\w+\.py$")
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
_OF_STORES = frozenset({"DistStoreError", "KeyError"})  # exceptions that name keys, which may look like paths
# A list item as Python prints it, and a command as the shell prints it.
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_COMMAND = re.compile(r"\++ .*\bpython[\d.]* .*=")
_PLAIN = frozenset({"true", "false", "none", "null", "auto", "default", "model", "data"})
_OF_WEIGHTS = re.compile(
    r"\.(?:weight|bias|layers|embed_tokens|embeddings?|lm_head|\w+_proj|\w*norm|experts?)(?:\.|$)"
)
_SUFFIXES = frozenset({"py", "json", "jsonl", "yaml", "yml", "parquet", "csv", "txt", "log", "sh", "arrow"})
_ITEMS = re.compile(r"[]['\", ]+")  # between list items
_IN_LINE = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception)(?:: \S|\([\"'])"
)  # an exception as other programs quote it
_MOST = 3  # maximum number of settings to name
# Libraries that are configured by arguments, the modules that check these, and the phrases with which they
# refuse them.
_REFUSING = frozenset(
    {
        "trl",
        "peft",
        "transformers",
        "vllm",
        "sglang",
        "accelerate",
        "deepspeed",
        "megatron",
        "datasets",
        "verl",
    }
)
_CHECKS = re.compile(
    r"^__(?:init|post_init)__$|valid|check|verify|parse_args|from_(?:engine|cli)_args|create_\w*config"
    r"|get_peft_model|inject_adapter"
)
_OF_ARGUMENTS = re.compile(r"(?:config|arguments?|args|arg_utils|options)\w*\.py$|/config/|/configs/")
_DEMANDS = re.compile(
    r"\bmust\b|\bshould\b|\bcannot\b|\bcan't\b|[Pp]lease|not supported|[Uu]nsupported|[Uu]nknown|"
    r"[Ii]nvalid|requires?\b|only support|not (?:a )?valid|not divisible|expected|incompatible"
    r"|mutually exclusive|at least|greater than|less than|smaller than"
)
_OF_RELEASE = re.compile(
    r"\brequires? (?:[A-Za-z][\w-]* version )?`?[A-Za-z][\w-]*`? ?[<>=~!]=? ?v?\d+\.\d|\b[A-Za-z]"
    r"[\w-]* ?[<>=~!]=? ?v?\d+\.\d[\w.]* is required|\binstalled `?[A-Za-z][\w-]*`? ?"
    r"[<>=~!]=? ?v?\d+\.\d|\b(?:up|down)grade `?[A-Za-z][\w-]*`? to (?:at least |version )?v?\d+\.\d"
)
_ARGUMENT = re.compile(
    r"`(?:--)?([a-z]\w*(?:_\w+|=\S+)?)(?:=[^`]*)?`|(?<!\w)(--[a-z][\w-]+)|(?<![\w./'-])([a-z][a-z0-9]*"
    r"(?:_[a-z0-9]+)+)(?![\w(./])"
)


@dataclass(frozen=True)
class Blame:
    """Where the fault lies.

    `settings` are dotted keys that the exception names, `file` is a path that it names, `place` is where it
    was raised ("reward.py:12, in f"), `raised_by` is the package of that place.
    """

    fault: Fault
    settings: tuple[str, ...] = ()
    file: str = ""
    place: str = ""
    raised_by: str = ""
    missing: str = ""
    """The package reported earlier as not installed, or the command that the shell does not find.

    An earlier line reports the package, and its name is undefined here.
    """
    announced: Line | None = None
    """That line."""
    is_refusal: bool = False
    """Whether the job's own code raised it on purpose."""
    is_of_release: bool = False
    """Whether the place uses what other releases of the package `raised_by` have."""

    @property
    def code(self) -> str:
        """The code of its page."""
        return _CODES[self.fault]

    @property
    def title(self) -> str:
        """What is wrong, without the exception's message."""
        if self.fault == "code":
            return f"an exception in the job's own code: {self.place}"
        if self.fault == "launch":
            return "the launch script fails in the shell"
        if self.fault == "configuration":
            named = ", ".join(self.settings)
            return (
                f"the job cannot run with {named} as set"
                if named
                else "the job cannot be configured like this"
            )
        if self.is_of_release:
            return (
                f"{self.place.partition(', in ')[0]} was written for another {self.raised_by} than the "
                "installed one"
            )
        if self.missing:
            return f"{self.raised_by or 'the job'} needs {self.missing}, which is not installed"
        if self.file:
            return f"{self._by} fails on this file: {self.file}"
        return f"an exception in {self._by}: {self.place or 'its traceback is not in the log'}"

    @property
    def _by(self) -> str:
        if self.raised_by == REMOTE_CODE:
            return "the model's own code (trust_remote_code)"
        return self.raised_by or "a program"

    @property
    def remedy(self) -> str:
        """What to look at next."""
        if self.fault == "code" and self.is_refusal:
            return (
                f"look at what is given to {self.place.partition(', in ')[0]}: the job's own code checks it "
                "there and refuses it"
            )
        if self.fault == "code":
            return f"correct {self.place.partition(', in ')[0]}"
        if self.fault == "launch" and self.missing:
            return (
                f"install {self.missing} where the script runs, or activate the environment that has it "
                f"before (which {self.missing}); a command of a Python package also runs as python -m, with "
                "the job's Python"
            )
        if self.fault == "launch":
            return "correct this line of the script"
        if self.settings:
            return f"correct {' or '.join(self.settings)} as the exception states"
        if self.file:
            return (
                f"look at {self.file}: whether it exists on this node, is whole, and may be read and "
                "written by this user"
            )
        if not self.place:
            return "the message states what is wrong"
        program = self.raised_by or "that program"
        return (
            f"compare what the exception states with what the job gives {program} (settings, paths, "
            f"data); it was raised at {self.place}; if it began with an upgrade, return to the releases "
            f"before it, and search the tracker of {program} for these words"
        )


def blamed(raised: Raised, lines: Sequence[Line], phase: Phase | None) -> Blame | None:
    """Return where the fault of an exception with a traceback lies; None without a traceback."""
    if not raised.frames:
        return None
    deepest = next(reversed(own_frames(raised.frames)), raised.frames[-1])
    by = package_of(deepest)
    if found_before := announcement(raised, lines):
        missing, line = found_before
        return Blame(
            "program", place=_place(deepest, deepest.path), raised_by=by, missing=missing, announced=line
        )
    if is_of_the_job(deepest) and not (raised.type.startswith(_OF_KEYS) and _FULL_KEY.search(raised.message)):
        refuses = deepest.code.startswith("raise ")
        return Blame("code", file=deepest.path, place=_place(deepest, deepest.path), is_refusal=refuses)
    _, found, inside = deepest.path.rpartition(f"/{by}/")
    place = _place(deepest, f"{by}/{inside}" if by and found else deepest.path)
    paths = (
        match[1]
        for match in _PATH.finditer(raised.message)
        if not _INSTALLED.search(match[1]) and not _OF_CPP.search(match[1])
    )
    file = "" if raised.name in _OF_STORES else next(paths, "")
    code = "" if raised.name in {"AttributeError", "NameError", "TypeError"} else deepest.code
    settings = settings_in(raised.message, code, lines) or unset_settings(raised, lines)
    if settings or phase in {"composition", "validation"}:
        return Blame("configuration", settings, file, place, by)
    if by in _REFUSING and _refuses(raised, deepest):
        return Blame("configuration", _arguments_in(raised.plain), file, place, by)
    return Blame("program", (), file, place, by)


def unset_settings(raised: Raised, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the settings that the job leaves empty and verl computes with.

    That is an empty value that the job gives, or None in an operation on its configuration.
    """
    if raised.name in {"TypeError", "ValueError"} and _OF_EMPTY.search(raised.message):
        return tuple(key for key, value in overrides_of(lines) if not value)[:_MOST]
    if raised.name != "TypeError" or "'NoneType'" not in raised.message or not raised.frames:
        return ()
    deepest = next(reversed(own_frames(raised.frames)), raised.frames[-1])
    if package_of(deepest) != "verl":
        return ()
    given = {key.rpartition(".")[2] for key, _ in overrides_of(lines)}
    found = (match[1].removesuffix(".") for match in _OF_CONFIG.finditer(deepest.code))
    return tuple(dict.fromkeys(key for key in found if key.rpartition(".")[2] not in given))[:_MOST]


def announcement(raised: Raised, lines: Sequence[Line]) -> tuple[str, Line] | None:
    """Return the package of an undefined name, and the earlier line that reports it as not installed.

    Its import failed quietly.
    """
    found = _UNDEFINED.search(raised.message) if raised.name == "NameError" else None
    if found is None:
        return None
    name = re.compile(rf"(?<![\w-]){found[1].replace('_', '[-_]')}(?![\w-])", re.IGNORECASE)
    for line in lines:
        if line.number >= raised.began:
            break
        if (written := name.search(line.text)) and _ANNOUNCED.search(line.text):
            return written[0], line
    return None


def package_of(frame: Frame) -> str:
    """Return the package that contains a file, "" for an unknown package."""
    if (tree := next(reversed(_NESTED.findall(frame.path)), "")) and not _OF_SITE.search(frame.path):
        return tree
    package = _OF_SITE.search(frame.path) or _PACKAGE.search(frame.path)
    name = package[1] if package else ""
    project = _PROJECT.search(frame.path[: package.start(1)]) if package and package.re is _PACKAGE else None
    if project is not None:
        return project[1].replace("-", "_")
    return _FOLDERS.get(name, name)


def own_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the places outside the standard library, without mere lookups.

    A place is left out if it only looks up an attribute, a key or a column for the place before it.
    """
    own = [frame for frame in frames if frame.function in _NOT_FORWARDED or not STANDARD.search(frame.path)]
    while len(own) > 1 and (own[-1].function == "__getattr__" or _looks_up(own[-1])):
        own.pop()
    return own


def _looks_up(frame: Frame) -> bool:
    """Return whether a place in a library of tables looks up a key or a column for its caller."""
    return _LOOKED_UP_IN.search(frame.path) is not None and _LOOKS_UP.match(frame.function) is not None


def _refuses(raised: Raised, deepest: Frame) -> bool:
    """Return whether a library refuses its configuration: it checks arguments, and states their form.

    It states what the arguments must be.
    """
    if raised.name not in {"ValueError", "AssertionError", "NotImplementedError", "ValidationError"}:
        return False
    if _OF_RELEASE.search(raised.message):
        return False  # another release of a package is required, no other setting
    checks = _CHECKS.search(deepest.function) or _OF_ARGUMENTS.search(deepest.path)
    return bool((checks or package_of(deepest) == "peft") and _DEMANDS.search(raised.message))


def _arguments_in(message: str) -> tuple[str, ...]:
    """Return the arguments that a refusal names, as code, options or words that look like argument names."""
    found = (next(filter(None, match.groups())) for match in _ARGUMENT.finditer(message))
    return tuple(dict.fromkeys(found))[:_MOST]


def names_exception(words: str) -> bool:
    """Return whether a complaint without a traceback names the exception that was raised."""
    return _IN_LINE.search(words) is not None


def blamed_alone(words: str, lines: Sequence[Line]) -> Blame:
    """Return where the fault lies if the log contains only the message of an exception."""
    settings = settings_in(words, "", lines)
    return Blame("configuration", settings) if settings else Blame("program")


def _place(frame: Frame, path: str) -> str:
    """Return where an exception was raised, as in "reward.py:12, in f"."""
    return f"{path}:{frame.line}" + (f", in {frame.function}" if frame.function else "")


def settings_in(message: str, code: str, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the settings of the job that a refusal, or the source line that raised it, names."""
    overrides = tuple(overrides_of(lines))
    file = next((match[1] for match in _PATH.finditer(message) if not _INSTALLED.search(match[1])), "")
    computed = tuple(dict.fromkeys(match[1] for match in _IN_CODE.finditer(code)))[:_MOST]
    return _settings(message, file, overrides) or computed or _settings(code, "", overrides)


def blamed_complaint(words: str, phase: Phase | None) -> Blame:
    """Return where the fault lies if a shell, an argument parser or Hydra complains without a traceback."""
    if phase == "shell":
        absent = _ABSENT_COMMAND.search(words)
        return Blame("launch", missing=absent[1] if absent else "")
    return Blame("configuration", _settings(words, "", ()))


def is_of_the_job(frame: Frame) -> bool:
    """Return whether a file is in no installed package and in no source tree of a known project."""
    path = frame.path.replace("\\", "/")
    if _COPIED.search(path):
        return False
    before, found, inside = path.rpartition("/verl/")
    if found and not _INSTALLED.search(f"{before}/"):
        return not (_OF_VERL.match(inside) or _INSTALLED.search(f"/{inside}"))
    return not _INSTALLED.search(path)


def _settings(message: str, file: str, overrides: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the settings that a message names: by key, else by the key's last part, else by value."""
    for line in message.split("\n"):
        if found := _FULL_KEY.search(line.strip()):
            return (next(filter(None, found.groups())),)
    if keys := [match[0] for match in _KEY.finditer(message) if _is_setting(match[0])]:
        return tuple(dict.fromkeys(keys))[:_MOST]
    if file and (keys := [key for key, value in overrides if _names(value, file)]):
        return tuple(dict.fromkeys(keys))[:_MOST]
    words = {word: -at for at, word in enumerate(reversed(_WORD.findall(message)))}
    last = [
        (words[part], key)
        for key, _ in overrides
        if "_" in (part := key.rpartition(".")[2]) and part in words
    ]
    if last:
        return tuple(key for _, key in sorted(last))[:_MOST]
    specific = ((key, part) for key, value in overrides for part in _ITEMS.split(value) if _is_specific(part))
    return tuple(dict.fromkeys(key for key, part in specific if _occurs_in(part, message)))[:_MOST]


def _is_setting(name: str) -> bool:
    """Return whether a dotted name is neither that of a file nor that of a weight."""
    return name.rpartition(".")[2] not in _SUFFIXES and _OF_WEIGHTS.search(name) is None


def _names(value: str, file: str) -> bool:
    """Return whether a file is a setting's value, an item of it, or a folder above it."""
    return any(f"{part.rstrip('/')}/".startswith(f"{file.rstrip('/')}/") for part in _ITEMS.split(value))


def _is_specific(value: str) -> bool:
    """Return whether a value is specific: neither a number nor a common word."""
    return len(value) > 2 and value.lower() not in _PLAIN and not value.replace(".", "").isdecimal()


def _occurs_in(value: str, text: str) -> bool:
    """Return whether a value occurs in a message as a separate word."""
    return re.search(rf"(?<![\w./-]){re.escape(value)}(?![\w/-])", text) is not None


def overrides_of(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Yield the job's settings as Hydra repeats them or `set -x` prints the command.

    Of a truncated line, those that remain.
    """
    text = next((line.text for line in lines if line.text.startswith(OVERRIDES)), None)
    if text is not None:
        words = [first or second for first, second in _QUOTED.findall(text.removeprefix(OVERRIDES))]
    else:
        shown = next((line.text for line in lines if _COMMAND.match(line.text)), "")
        words = [word.strip("'\"") for word in shown.split()]
    for word in words:
        key, found, value = word.lstrip("+~").partition("=")
        if found and not key.startswith("-"):
            yield key, value
