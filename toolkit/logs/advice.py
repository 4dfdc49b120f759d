"""Advice on an exception, derived from its message and from where it was raised: the package that lacks a module, the missing file.

A signature contains what helped others; this module refers to what this log names, and returns nothing if it names nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from verl_doctor.toolkit.logs.asserted import chosen, in_words, operands
from verl_doctor.toolkit.logs.blame import (
    KNOWN,
    REMOTE_CODE,
    STANDARD,
    announcement,
    is_of_the_job,
    overrides_of,
    own_frames,
    package_of,
    unset_settings,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.packages import (
    bounds,
    cuda_wheel,
    distribution,
    extended,
    has_other_name,
    has_same_name,
    installed_as,
    is_known,
    is_served,
    owner_of,
    provider,
    tree_of,
)
from verl_doctor.toolkit.logs.python_errors import Frame, Raised
from verl_doctor.toolkit.logs.releases import bounds_of, fault_of, has_fault, instead_of, owners_of
from verl_doctor.toolkit.logs.shapes import mismatched

_MISSING = re.compile(r"No module named '?([A-Za-z_][\w.]*)'?")
_NO_NAME = re.compile(
    r"cannot import name '([^']+)' from (partially initialized module )?'([\w.]+)'(?:.*\((/[^)]+)\))?"
)
_CALL = re.compile(
    r"([\w.<>]+)\(\) (got an unexpected keyword argument '(\w+)'|(?:takes|missing) .*(?:argument|given).*)"
)
_UNNAMED_CALL = re.compile(r"Unexpected keyword argument '(\w+)'")
_NO_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NO_MEMBER = re.compile(
    r"['`](?:\w+\.)*(\w+)['`] object has no attribute ['`](\w+)['`]|type object '(\w+)' has no attribute '(\w+)'|(?:^|\] )([A-Z]\w+) has no attribute (\w+)"
)
# A message may be a single long word: a pattern with three repetitions that can all begin anywhere in it would take hours.
_SYMBOL = re.compile(r": undefined symbol: (\S+)")
_ASSIGNED = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+=\w")
_TABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*|\w*(?:mapping|registry|factories|classes|handlers)\w*)\[(?:\w+\.)*(\w+)\]"
)
_MISSING_KEY = re.compile(r'key "(\w+)" not found in TensorDict')
# Tensors of verl's batches, and the settings with which they are computed.
_KEYS_OF = {
    "ref_log_prob": "set actor.use_kl_loss=True or algorithm.use_kl_in_reward=True, which start the reference policy; both must fit a trainer or recipe of your own",
    "rollout_log_probs": "set rollout.calculate_log_probs=True",
    "old_log_probs": "it must be computed before the update (actor.compute_log_prob)",
    "values": "set algorithm.adv_estimator=gae, which starts the critic, or an estimator that needs none (grpo)",
    "rm_scores": "set reward_model.enable=True, or let the reward function return scores",
    "token_level_scores": "the reward must run before the advantages are computed",
    "response_mask": "compute_response_mask must run before, as in this release's trainer; in a recipe whose trainer calls it after apply_kl_penalty, set algorithm.use_kl_in_reward=False (actor.use_kl_loss=True instead), or move the call up",
}
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_NEEDED = re.compile(r"^([A-Z][\w-]*) (?:is )?required (?:to use|for) \w")
_MANDATORY = re.compile(r"Missing mandatory value: ([\w.]+)")
_LIBRARY = re.compile(r"(?<![\w.+-])(\w[\w.+-]*\.so[\w.]*): cannot open shared object file")
_FILE = re.compile(r"(?:\[Errno \d+\] )?([A-Z][\w ]+?):? (?:b?'([^']+)'|\"([^\"]+)\")")
_IN_DATA = re.compile(r"reward|dataset|ray_trainer|agent_loop|metric|rl_dataset|main_ppo")
_TRAINERS = frozenset({"trl", "transformers", "openrlhf", "datasets", "llamafactory", "swift", "unsloth"})
_KEY = re.compile(r"['\"]?([A-Za-z_]\w*)['\"]?")
_KEY_SETTING = re.compile(r"\[(?:self|config|data_config|self\.config)\.(\w+_key)\]")
_PIP = re.compile(
    r"[`'\"]?((?:uv )?pip3? install [^`;|\n]{2,80}?)(?:[`\"]|'?\.(?:\s|$)|'(?:\s|$)|\.?$)", re.MULTILINE
)
# A command of pip that a message gives, with requirements that have a release: the words around it may not be part of it.
_COMMAND = re.compile(
    r"((?:uv )?pip3? install (?:-{1,2}[\w-]+ )*(?:['\"]?[A-Za-z][\w.\[\]-]*(?:[=<>!~]=?[\w.,<>=!*]+)['\"]?)(?: ['\"]?[A-Za-z][\w.\[\]-]*[=<>!~]=?[\w.,<>=!*]+['\"]?)*)"
)
_NOT_INSTALLED = re.compile(
    r"the package (?:for )?(\w[\w-]*) (?:seems to be not installed|doesn't seem to be installed)|requires? the following packages? [^:]*: ([\w-]+)|[Rr]equires the (\w[\w-]*) (?:library|package)|"
    r"No package metadata was found for ([\w-]+)|[Pp]lease install (?:the )?`?([\w-]+)`? (?:first|to )|"
    r"^(?!Module\b|Package\b|Library\b|It\b|This\b)([A-Za-z][\w-]*) (?:was|is) not (?:found|installed)\b"
)
_BOUNDS = r"(?:>=|<=|==|~=|<|>) ?\d[\w.]*(?: ?, ?(?:>=|<=|!=|<|>) ?\d[\w.]*)*"
_REQUIRED = re.compile(
    rf"(?<![\w.-])([A-Za-z][\w-]*) ?({_BOUNDS}) is required|[Rr]equires? (?:[A-Za-z]\w* version )?`?([A-Za-z][\w-]*)`? ?({_BOUNDS})|"
    r"(?<![\w.-])([A-Za-z][\w-]*) with minimum required version (\d[\w.]*)"
)
_OVERRIDE = re.compile(
    r"(?<![\w.])\+{0,2}((?:actor_rollout_ref|data|trainer|algorithm|critic|reward|reward_model|async_training|rollout|custom_reward_function)(?:\.\w+)+)="
)
_RECIPE = re.compile(r"/(recipes?|examples?)/")
# A sentence, which may contain a decimal number, and phrases with which a program requests something.
_SENTENCE = re.compile(r"(?:[^.!?;]|\.(?=\S))+[.!?;]?")
_ASKS = re.compile(
    r"(?<!-)\b(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Mm]ake sure|[Ee]nsure|[Uu]se (?!of)|[Ss]et |[Ii]ncrease|[Dd]ecrease|[Rr]educe|(?:[Rr]e)?[Ii]nstall|[Uu]pgrade|[Dd]owngrade|[Uu]pdate|[Ss]pecify|"
    r"[Dd]id you (?:mean|forget)|[Yy]ou (?:can|may|could|need|have) (?!see|find)|[Aa]lternatively|[Ss]witch to|as a workaround|(?:to|[Tt]o) (?:fix|solve|resolve|avoid|enable|disable|bypass|override) )\b|"
    r"^(?:[Pp]ass|[Aa]dd|[Rr]un|[Ee]nable|[Dd]isable|[Rr]emove|[Pp]rovide|[Cc]hoose|[Cc]all|[Cc]hange|[Cc]heck)\b|\bby (?:passing|setting|using|adding|specifying|installing|running)\b|"
    r"\bmust\b|\bMUST\b|\b[Ss]hould (?:be|have|match)\b|\b(?:needs?|has|have) to\b|\brequires?\b|\b(?:is|are) required\b|\bonly (?:supports?|supported|available|works?)\b|\binstead\b|"
    r"\b(?:[Vv]alid|[Aa]llowed|[Pp]ossible|[Ss]upported|[Aa]vailable|current) (?:values?|options?|choices?|columns?|keys?|dtypes?|types?|methods?|backends?|modes?|formats?|versions?|names?)\b|\b[Cc]hoo?se from\b|\b[Aa]vailable: "
)
_SUGGESTION = re.compile(r"\. Did you mean: '\w+'\?$")  # by Python, of a similar name in the same object
_MOST_WORDS = 400  # characters of the demands that are repeated
# Sentences that state which two things do not go together, and those that only one kind of thing does.
_APART = re.compile(
    r"(.+?) (?:(?:(?:is|are) )?(?:not (?:yet |currently )?(?:compatible|supported|implemented|available|allowed)|incompatible|unsupported) (?:with|for|on|when|by|in|if|while|using)|"
    r"(?:does not|doesn't|do not|don't|cannot|can't|can not) (?:yet |currently )?(?:support|work with|work on|be used (?:together )?(?:with|for|in)|be combined with|be enabled (?:with|when))) (.+)"
)
_UNSUPPORTED = re.compile(
    r"\b(?:not (?:yet |currently )?(?:supported(?! between instances)|implemented)|[Uu]nsupported(?! operand)|(?:does not|doesn't|do not|don't|cannot|can't) (?:yet |currently )?support)\b"
)
_TIME = re.compile(r" (?:yet|right now|currently|at the moment|for now)$")
_NAMELESS = frozenset({"it", "this", "that", "they", "we", "you", "which", "there", "model", "the model"})
_FIELD = re.compile(
    r"([\w.\[\]-]+)\n[ \t]*(?![ \t]|Value error|Assertion failed)(.+?) \[type=(\w+), input_value=(.{1,80}?)(?:, input_type=\w+)?\]"
)
_VALIDATED = re.compile(r"^\d+ validation errors? for \w+ |Value error, ")
_OF_MODEL = re.compile(r"validation errors? for (\w+)")
# Arguments of engines, LoRA and Megatron, with verl's keys for them.
_ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_SET_BY = {
    **dict.fromkeys(["gpu_memory_utilization", "mem_fraction_static"], f"{_ROLLOUT}.gpu_memory_utilization"),
    **dict.fromkeys(["max_model_len", "context_length"], f"{_ROLLOUT}.max_model_len"),
    **{name: f"{_ROLLOUT}.{name}" for name in ("max_num_batched_tokens", "max_num_seqs", "enforce_eager", "enable_chunked_prefill", "enable_prefix_caching", "load_format", "free_cache_engine", "disable_log_stats", "temperature", "top_p", "top_k")},
    **dict.fromkeys(["tensor_parallel_size", "tp_size"], f"{_ROLLOUT}.tensor_model_parallel_size"),
    "data_parallel_size": f"{_ROLLOUT}.data_parallel_size",
    **{name: f"{_MODEL}.{name}" for name in ("target_modules", "exclude_modules", "lora_rank", "lora_alpha", "use_remove_padding", "trust_remote_code")},
    "max_lora_rank": f"{_MODEL}.lora_rank",
    **dict.fromkeys(["lr_decay_steps", "total_training_steps"], "actor_rollout_ref.actor.optim.total_training_steps (and actor.optim.lr_decay_steps)"),
    "max_resp_len": "+reward_model.reward_kwargs.max_resp_len (+reward.reward_kwargs.max_resp_len in newer releases), to be set to data.max_response_length",
    "attn_implementation": f"+{_MODEL}.override_config.attn_implementation",
    **{name: f"actor_rollout_ref.actor.megatron.{name}" for name in ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel")},
    **{name: f"+actor_rollout_ref.actor.megatron.override_transformer_config.{name}" for name in ("recompute_granularity", "recompute_method", "recompute_num_layers", "moe_grouped_gemm", "moe_token_dispatcher_type", "attention_backend")},
}  # fmt: skip
# Parts of engines and trainers that can be left out: what shows them in the path of a place or in a message, and what leaves them out.
_PARTS = (
    (re.compile(r"aiter"), "VLLM_ROCM_USE_AITER=0, or the variable of the part that failed, such as VLLM_ROCM_USE_AITER_MOE=0"),
    (re.compile(r"deep_?gemm", re.IGNORECASE), "VLLM_USE_DEEP_GEMM=0, in SGLang SGLANG_ENABLE_JIT_DEEPGEMM=0"),
    (re.compile(r"custom_all_?reduce"), "engine_kwargs.vllm.disable_custom_all_reduce=True"),
    (re.compile(r"symm_mem"), "VLLM_ALLREDUCE_USE_SYMM_MEM=0"),
    (re.compile(r"[Cc]ascade"), "engine_kwargs.vllm.disable_cascade_attn=True"),
    (re.compile(r"spec_decode|speculative|eagle|NGRAMWorker", re.IGNORECASE), "no speculative decoding, or another method of it"),
    (re.compile(r"flashinfer", re.IGNORECASE), "VLLM_USE_FLASHINFER_SAMPLER=0 and another attention backend, in vLLM engine_kwargs.vllm.attention_backend (VLLM_ATTENTION_BACKEND in older releases), in SGLang attention_backend=triton"),
    (re.compile(r"(?:vllm|sglang)/.*attention/"), "another attention backend: in vLLM engine_kwargs.vllm.attention_backend (VLLM_ATTENTION_BACKEND in older releases), in SGLang attention_backend"),
    (re.compile(r"(?<!vllm_)flash_attn(?!/layers)"), "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"),
    (re.compile(r"cuda_?graph"), "rollout.enforce_eager=True"),
    (re.compile(r"torch/_(?:dynamo|inductor)/"), "rollout.enforce_eager=True where the engine failed, actor.use_torch_compile=False where the trainer did"),
    (re.compile(r"/cumem|torch_memory_saver"), "rollout.free_cache_engine=False, if both fit on the GPU"),
    (re.compile(r"liger_kernel"), "actor_rollout_ref.model.use_liger=False"),
    (re.compile(r"transformer_engine/.*attention|fused_attn"), "NVTE_FUSED_ATTN=0, or a newer cuDNN, which computes this attention"),
    (re.compile(r"bitsandbytes"), "another optimizer"),
    (re.compile(r"decord"), "FORCE_QWENVL_VIDEO_READER=torchvision"),
)  # fmt: skip
_OF_CRASHED = "enforce_eager=True, disable_custom_all_reduce=True"  # of vLLM as a whole
CRASH = "LOG117"
"""The code of a crash in compiled code."""
_CRASH = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_CRASH_LINES = 12  # lines below "Fatal Python error" that are searched for a place
_WITHOUT_GPU = re.compile(r"TaskRunner|Reward\w*Worker|RewardManager|AgentLoopWorker|main_task")
_VARIABLE = re.compile(r"\b[Ss]et(?:ting)? [`'\"]?([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b|\bexport ([A-Z][A-Z0-9_]+)=")
# Sentences that only refer to a text or a tracker.
_REFERS = re.compile(
    r"[Ff]or (?:more |further )?(?:information|details)\b|[Pp]lease (?:see|refer|visit|report|file|open)\b"
)
# Exceptions by which a package's own code fails, those that its input may cause too, and packages that call what others give them.
_INTERNAL = frozenset(
    {"AttributeError", "AssertionError", "NameError", "UnboundLocalError", "NotImplementedError"}
)
_ON_INPUT = frozenset({"KeyError", "IndexError", "TypeError"})
# Exceptions that report something outside the program: a file, a network, a limit, a signal, a process.
_OUTSIDE = frozenset(
    {"OSError", "IOError", "FileNotFoundError", "PermissionError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "TimeoutError", "Timeout",
     "BrokenPipeError", "MemoryError", "OutOfMemoryError", "KeyboardInterrupt", "SystemExit", "CalledProcessError", "HTTPError", "HTTPStatusError", "ReadTimeout", "ConnectError",
     "RayTaskError", "RayActorError", "ActorDiedError", "DistBackendError", "DistStoreError", "DistNetworkError", "GetTimeoutError", "ProcessRaisedException", "ChildFailedError"}
)  # fmt: skip
_OF_INPUT = re.compile(r"'(?:str|list|dict|tuple|int|float|bool|set)' object")
_PASSING = frozenset(
    {
        "starlette",
        "uvicorn",
        "fastapi",
        "click",
        "typer",
        "fire",
        "ray",
        "torch",
        "hydra",
        "uvloop",
        "asyncio",
        "triton",
        "numpy",
        "datasets",
        "pandas",
    }
)
_NAMESPACE = "(unknown location)"
_NONE = "'NoneType'"
_LAZY = "Failed to import "  # transformers and trl, of a module that they import when it is used
# Demands that a program cannot follow: they state what went wrong within it.
_OF_PYTHON = re.compile(
    r"^\w+ indices must be |^'?\w+'? must be (?:str|int|an? \w+), not |\b[Ss]izes? of tensors? |[Tt]ensors? must (?:have|match|be)|must match the (?:size|shape|existing)|Conversation roles|\bshould (?:be|have|match) (?:a |an )?(?:\dD? |\d-?[dD] )?(?:tensor|shape|v\()"
)
_SILENT = frozenset({"RayTaskError", "KeyError", "CalledProcessError", "OutOfMemoryError"})
_MOST_FIELDS = 3  # fields or settings that advice names
_NAME = re.compile(r"[a-z][a-z_0-9]{3,}")
_LONGEST = 1500  # characters of a message that are searched for sentences
_NEAREST = 3  # the deepest places, which name the part that failed
# A number that is no multiple of another one, each after what it is.
_MULTIPLE = re.compile(
    r"((?:[A-Za-z_`'\"][\w`'\".]* ){0,5}[A-Za-z_`'\"][\w`'\".]*)[ :=(]{1,3}(\d{1,9})\)? ?(?:,? ?(?:is|are) not (?:evenly )?(?:a multiple of|divisible by)|,? ?(?:must|should|needs to|has to) be (?:evenly )?(?:a multiple of|divisible by)) "
    r"((?:[A-Za-z_`'\"][\w`'\".]* ){0,5}[A-Za-z_`'\"][\w`'\".]*)[ :=(]{1,3}(\d{1,9})\b"
)
_FILLERS = re.compile(r"\b(?:[Tt]he|[Pp]rovided|[Gg]iven|[Nn]ormalized|[Nn]umber|[Vv]alue)\b ?(?:of )?")
# Operations of which one operand is a text; Python formats a text with %.
_OF_TEXT = re.compile(
    r"unsupported operand type\(s\) for .*'(?:str|NoneType)'|not supported between instances of .*'(?:str|NoneType)'|not all arguments converted during string formatting|"
    r"can't multiply sequence by non-int|can only concatenate str"
)
_IS_NUMBER = re.compile(
    r"(?:size|length|len|steps?|epochs?|ratio|coef|lr|freq|nnodes|per_node|per_gpu|temperature|utilization|rank|alpha|clip|decay|seed|workers|tokens|seqs|\.n|top_[kp]|momentum|beta\d?|eps)$"
)
_ABSENT_VALUES = frozenset({"null", "None", "~", ""})
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|null|None|\$\{.*")
# The message of an AttributeError of an Enum, and a call with the entries of a dictionary.
_BARE = re.compile(r"(\w+)(?:\. Did you mean: '\w+'\?)?$")
_PASSED_ON = re.compile(r"\(\*\*\w+(?:\.\w+)*\)")
_WRAPPER = re.compile(
    r"DistributedDataParallel|FullyShardedDataParallel|DataParallel|DeepSpeedEngine|OptimizedModule|PeftModel\w*|AutoModelFor\w+WithValueHead|DDP|FSDPModule"
)
_KERNEL = re.compile(r"illegal memory access|misaligned address|unspecified launch failure")
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
_NEVER_SET = re.compile(
    r"local variable '(\w+)' referenced before assignment|cannot access local variable '(\w+)' where it is not associated"
)
# What selects the branch that sets a variable in verl's trainers.
_CHOSEN_BY = {
    "rollout": f"{_ROLLOUT}.name",
    "sharding_manager": f"{_ROLLOUT}.name",
    "optimizer": "actor.optim.optimizer",
    "lr_scheduler": "actor.optim.lr_scheduler_type (or warmup_style)",
    "reward_manager_cls": "reward_model.reward_manager",
    "sampler": "data.sampler",
}
_TWICE = re.compile(r"([\w.]+)\(\) got multiple values for (?:keyword )?argument '(\w+)'")
_NO_RELEASE = re.compile(
    r"between instances of '(?:NoneType' and 'str|str' and 'NoneType|NoneType' and 'Version)'|expected string or bytes-like object"
)
_RELEASE = re.compile(r"\w*[vV]ersion\w*")
_UNPACKED = re.compile(r"(too many|not enough) values to unpack \(expected (?:at least )?(\d+)")
_ASSIGNS = re.compile(r"(?:for )?[\w.]+(?:, ?[\w.]+)+ (?:=|in) (?:await )?([\w.]+)\(")
_ENCODED = re.compile(
    r"'(?:tokenizers\.Encoding|BatchEncoding)' object has no attribute|unsupported operand .*'BatchEncoding'|not '?BatchEncoding"
)
_OPERAND = re.compile(
    r"unsupported operand type\(s\) for .*'NoneType'|not supported between instances of .*'NoneType'"
)
_ARGUMENTS = re.compile(r"\b(?:args|config|cfg|opts?|options|hparams)\.([a-z]\w*(?:\.[a-z]\w*)*)(?![\w.(])")
_EMPTY = re.compile(
    r"[Ii]nvalid (\w[\w ]*): (?:None|''|\"\")(?:, |\. ?)(?:[Ee]xpected|[Mm]ust be|[Ss]hould be) (.+)"
)
_BUILT = re.compile(r"(/\S*torch_extensions/\S+/)\w+\.so: cannot open shared object file")
_CONDITION = re.compile(
    r"\b(?:[Ww]hen|[Ii]f) `?([a-z]+(?:_[a-z]+)+)`? (?:is|=|==) ?`?(?:True|enabled|set to True)\b"
)
_NOT_PASSED = re.compile(
    r"^`?(\w+)`? (?:must be|is|should be|has to be) (?:passed|provided|a kwarg|given|specified)\b|\b(?:must|should|need to) (?:pass|provide) `?(\w+)`?"
)
# Engines and compilers, whose checks are of their own state: what their input must be, they check where they take it.
_ENGINES = frozenset(
    {"verl", "vllm", "vllm_ascend", "sglang", "torch", "triton", "flashinfer", "lmcache", "fla"}
)
_NO_COLUMNS = re.compile(r"None of \[Index\(\[(.+?)\]|\[(.+?)\] not in index")
_ABSENT = re.compile(
    r"(?<![\w.])['\"`]?(~?/[^'\"`\s]+?|(?<![\w/'\"`])[\w.-]+/[^'\"`\s]+?)['\"`]?,? (?:does not exist|doesn't exist|(?:was |is )?not found|cannot be found)"
)
_OF_FILES = frozenset(
    {"FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError", "FileExistsError"}
)
_SAVED = re.compile(r"^(.*/global_step_\d+)/")
_UNREAD = re.compile(r"full_key: ([\w.]+)")
_AT_LINE = re.compile(r"in \"([^\"<]+)\", line (\d+)")


@dataclass(frozen=True)
class _Place:
    """Where an exception was raised: the package ("" for a file of the job), and the place as text."""

    package: str
    words: str
    caller: str = ""
    """The nearest other package, or file of the job, that called it; "" for none."""
    code: str = ""
    """The source line, where the traceback has it."""
    at: str = ""
    """The file and the line."""


def advised(
    raised: Raised, lines: Sequence[Line], *, is_known: bool = False, is_refusal: bool = False
) -> str:
    """Return advice, in parts joined by "; "; "" if there is none.

    `is_known` is whether a signature has a remedy for the exception; general advice is omitted then. `is_refusal` is
    whether it names the settings that it refuses; advice on other releases is omitted then.
    """
    place = _place(raised.frames)
    readers: tuple[Callable[[], str], ...] = (
        partial(_recommended, raised, place),
        partial(_needed, raised, place),
        partial(_of_version, raised, place),
        partial(_announced, raised, place, lines),
        partial(_missing, raised, place, lines),
        partial(_of_remote_api, raised, place),
        partial(_without_name, raised, place, lines),
        partial(_called, raised, place, lines),
        partial(_without_attribute, raised, place, lines),
        partial(_unlinked, raised),
        partial(_of_file, raised),
        partial(_of_shapes, raised),
        partial(_divisible, raised, lines),
        partial(_of_data, raised, place),
        partial(_of_text, raised),
        partial(_mandatory, raised),
        partial(_without_toolkit, raised, place),
        partial(_unread, raised),
        partial(_never_set, raised, place),
        partial(_twice, raised, place),
        partial(_without_release, raised, place),
        partial(_unpacked, raised, place, lines),
        partial(_empty, raised),
        partial(_not_passed, raised, place, lines),
        partial(_undefined, raised, place, lines),
        partial(_of_recipe, raised),
        partial(_asserted, raised, place, lines),
        partial(_unset, raised, place, lines),
        partial(_no_number, raised, place, lines),
        partial(_without_gpu, raised),
        partial(_generated, raised),
    )
    general: tuple[Callable[[], str], ...] = (
        partial(_invalid, raised),
        partial(_demanded, raised),
        partial(_apart, raised),
        partial(_unsupported, raised, place, lines),
    )
    found = next((found for reader in readers if (found := reader())), "")
    if is_known:
        return found
    around = _around(raised, place)
    if found:
        return "; ".join(filter(None, (found, around)))
    found = next((found for reader in general if (found := reader())), "")
    keys = _set_by(raised, lines)
    if not found and keys:
        return "correct " + " and ".join(f"{key}, which sets {name} in verl" for name, key in keys.items())
    if not found and not is_refusal:
        found = _of_remote_code(raised, place) or _of_releases(raised, place, lines)
    return "; ".join(
        filter(None, (found, around, *(f"in verl, {name} is {key}" for name, key in keys.items())))
    )


def of_release(raised: Raised, lines: Sequence[Line]) -> str:
    """Return advice on a known fault of a release, "" if the log names a release that does not have it."""
    fault = fault_of(raised)
    if fault is None:
        return ""
    installed = next(_versions(fault.package, lines), "")
    return instead_of(fault, installed) if not installed or has_fault(fault, installed) else ""


def kernel(raised: Raised) -> str:
    """Return how to find the kernel that failed, and how to do without the part of a package that called it."""
    if _KERNEL.search(raised.message) is None:
        return ""
    place = _place(raised.frames)
    around = _around(raised, place).removeprefix("or ")
    find = (
        "the failing call may be an earlier one than the traceback shows: run the step again with CUDA_LAUNCH_BLOCKING=1 (in the environment of ray start or env_vars of the runtime_env), and "
        "compute-sanitizer if that is not enough"
    )
    return "; ".join(filter(None, (around, find)))


def _around(raised: Raised, place: _Place) -> str:
    """Return how to do without the part of an installed package in which an exception was raised."""
    if (
        place.package in {"", REMOTE_CODE}
        or raised.name in _OUTSIDE
        or raised.name.endswith(("ImportError", "ModuleNotFoundError"))
    ):
        return ""
    nearest = (frame.path for frame in reversed(own_frames(raised.frames)[-_NEAREST:]))
    switch = next(filter(None, map(_switch, (raised.message[:_LONGEST], *nearest))), "")
    return f"or do without the part that failed: {switch}" if switch else ""


def _switch(shown: str) -> str:
    """Return what leaves out the part that a path or a message names."""
    return next((switch for part, switch in _PARTS if part.search(shown)), "")


def crashed(number: int, lines: Sequence[Line]) -> str:
    """Return advice on the package in which a process crashed: the deepest place that faulthandler prints below this line."""
    below = (line.text for line in lines if number < line.number <= number + _CRASH_LINES)
    places = (Frame(found[1], int(found[2]), found[3]) for found in map(_CRASH.search, below) if found)
    deepest = next((frame for frame in places if not STANDARD.search(frame.path)), None)
    package = package_of(deepest) if deepest is not None else ""
    if deepest is None or package in {"", "ray"}:
        return ""
    switch = _switch(deepest.path) or (_OF_CRASHED if package == "vllm" else "")
    switch = f", or do without it ({switch})" if switch else ""
    return f"it crashed in {package} ({_at(deepest)}, in {deepest.function}): install {distribution(package)} again for this torch and this GPU, or a newer release{switch}"


def _place(frames: Sequence[Frame]) -> _Place:
    """Return the deepest place outside the standard library."""
    own = own_frames(frames)
    if not own:
        return _Place("", "")
    deepest = own[-1]
    at = _at(deepest)
    if is_of_the_job(deepest):
        return _Place("", at, code=deepest.code, at=at)
    package = package_of(deepest)
    callers = (
        _at(frame) if is_of_the_job(frame) else package_of(frame)
        for frame in reversed(own[:-1])
        if package_of(frame) not in {package, "accelerate", *_PASSING}
    )
    return _Place(package, package or at, next(callers, ""), deepest.code, at)


_WITHOUT_FLASH_ATTENTION = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"


def _at(frame: Frame) -> str:
    return f"{frame.path.rpartition('/')[2]}:{frame.line}"


def _recommended(raised: Raised, place: _Place) -> str:
    """Return advice on a package that an installed package recommends in its error message."""
    if not raised.name.endswith(("ImportError", "ModuleNotFoundError", "PackageNotFoundError")):
        return ""
    if found := _PIP.search(raised.message):
        return f"{_for_shell(found[1].strip())}, with the job's Python, on every node"
    if _ASSIGNED.search(raised.message) and (demand := _demanded(raised)):
        return demand
    if found := _NOT_INSTALLED.search(raised.message):
        name = next(filter(None, found.groups())).strip()
        how = _installing(name, known=True) + (f": {place.words} requests it" if place.words else "")
        if "FlashAttention" in raised.message:
            how += f"; or do without it: {_WITHOUT_FLASH_ATTENTION}"
        if raised.name == "PackageNotFoundError":
            how += f"; if {name} is a source tree on PYTHONPATH, which has no metadata, run pip install --no-deps -e . in it, or use a release of {place.words or 'the caller'} that does not query its version"
        return how
    return ""


def _needed(raised: Raised, place: _Place) -> str:
    """Return advice on a package that a message calls required."""
    if (found := _NEEDED.search(raised.message)) is None or not place.package:
        return ""
    return f"{_installing(found[1], known=True)}: {place.words} requires it"


def _of_version(raised: Raised, place: _Place) -> str:
    """Return advice on a package that is installed in another release than a message requires."""
    found = _REQUIRED.search(raised.message)
    if found is None:
        return ""
    name, bounds = (
        (found[1] or found[3], found[2] or found[4]) if found[5] is None else (found[5], f">={found[6]}")
    )
    if name.lower() in {"python", "version", "cuda", "and", "or"}:
        return ""
    by = f", as {place.words} requires" if place.words else ""
    return (
        f"pip install '{name}{''.join(bounds.split()).rstrip('.')}' with the job's Python, on every node{by}"
    )


def _announced(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on an undefined name whose package an earlier line reports as not installed."""
    found = announcement(raised, lines)
    if found is None:
        return ""
    name = found[0].replace("-", "_")
    user = (
        f": {place.words} uses it, and only an earlier line reports that it is missing" if place.words else ""
    )
    return f"{_installing(name, known=True)}{user}"


def _of_recipe(raised: Raised) -> str:
    """Return advice on a recipe or example that does not fit the release of verl that runs it."""
    own = own_frames(raised.frames)
    if raised.name not in {"AttributeError", "TypeError", "ImportError", "ModuleNotFoundError"} or not own:
        return ""
    if not is_of_the_job(own[-1]) or (found := _RECIPE.search(own[-1].path)) is None:
        return ""
    return (
        f"if this {found[1].removesuffix('s')} is unchanged, it was written for another release of verl: use the one of the release that runs, or install "
        f"the verl that its README names"
    )


def _asserted(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return the condition of an assertion in words, if it depends on settings of the job."""
    condition = in_words(place.code)
    if raised.name != "AssertionError" or not condition or place.package == "":
        return ""
    is_explained = not _is_wordless(raised.message) and bool(_demanded(raised))
    if (only := chosen(place.code)) is not None and (key := _setting(only[0], place, lines)):
        return f"set {key}={only[1]}: {place.at} accepts nothing else"
    keys = {name: key for name in operands(place.code) if (key := _setting(name, place, lines))}
    if not keys or is_explained:
        return ""
    plain = re.sub(r"\bconfig\.", "", condition)
    named = ", ".join(f"{name.rpartition('.')[2]} is {key}" for name, key in keys.items() if key not in plain)
    return f"choose the settings so that this holds: {plain}{f' ({named})' if named else ''}"


def _setting(name: str, place: _Place, lines: Sequence[Line]) -> str:
    """Return the setting that a name in verl's code, or an argument of an engine, stands for; "" if it is none."""
    path, dot, last = name.rpartition(".")
    if dot and path.startswith("config") and place.package == "verl":
        path = path.removeprefix("config").removeprefix(".")
        full = ".".join(filter(None, (path, last)))
        return next((key for key in _given(lines) if f".{key}".endswith(f".{full}")), full)
    given = next((key for key in _given(lines) if key.rpartition(".")[2] == last), "")
    return (_SET_BY.get(last, "") or given) if _runs_verl(place, lines) else ""


def _given(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the keys that the job's command sets."""
    return (found[1] for line in lines for found in _OVERRIDE.finditer(line.text))


def _runs_verl(place: _Place, lines: Sequence[Line]) -> bool:
    return "verl" in {place.package, place.caller} or any("actor_rollout_ref." in line.text for line in lines)


def _for_shell(command: str) -> str:
    """A command of pip with its bounds quoted: the shell would take > and < for redirections."""
    return " ".join(
        f"'{word}'" if re.search("[<>]", word) and not word.startswith(("'", '"')) else word
        for word in command.split()
    )


def _installing(name: str, *, known: bool) -> str:
    """How to install a module or a package. `known` is whether an unfamiliar name is that of a package."""
    top = name if has_other_name(name) else name.lower()
    same = name.replace("_", "-") if known or has_same_name(name) else ""
    if requirement := installed_as(top) if has_other_name(top) else same:
        return f"pip install {requirement} with the job's Python, on every node"
    return f"install the package that provides the module {top} with the job's Python, from its project if the package index does not have it"


def _missing(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a missing module: the package is not installed, or its release does not have the module."""
    found = _MISSING.search(raised.message)
    is_import = raised.name.endswith(("ImportError", "ModuleNotFoundError"))
    if found is None or not (is_import or _LAZY in raised.message):
        return ""
    module = found[1]
    top, dot, _ = module.partition(".")
    if place.package == "ray" and not is_known(top):
        return (
            f"Ray's worker does not find {top}, which an object or a function of the job comes from: install it on every node, or add its folder to PYTHONPATH before ray start on every "
            "node, or to working_dir or py_modules of the job's runtime_env (ray job submit --runtime-env)"
        )
    if shipped := provider(module):
        return f"pip install {shipped} with the job's Python, on every node: it provides {module}, which {place.words or 'the importer'} imports"
    if tree := tree_of(module):
        return (
            f"the wheel of {distribution(top)} has no {'.'.join(module.split('.')[:2])}: git clone {tree}, check out the tag of the release that {place.words or 'the importer'} names, and add its folder to "
            "PYTHONPATH on every node (ms-swift: MEGATRON_LM_PATH)"
        )
    if dot and top == place.package:
        return f"the installation of {top} is incomplete or mixes two releases: its own module {module} is missing. pip install --force-reinstall --no-cache-dir {distribution(top)} with the job's Python"
    if dot and is_known(top):
        return (
            f"the installed {_dated(top, lines)} has no module {module}, which {place.words or 'its importer'} imports: install the release of {top} that "
            f"{place.words or 'it'} was made for{_since('', module)}, or another release of {place.package or 'the importer'}"
        )
    if place.package == "" and not is_known(top):
        return (
            f"{place.words} imports {top}: if it is part of the job, add its folder to PYTHONPATH on every node, or to working_dir of the runtime_env"
            if place.words
            else ""
        )
    how = _installing(top, known=has_same_name(top))
    if not is_known(top) and raised.frames and "-packages/" not in raised.frames[-1].path:
        how += (
            " (a submodule of the source tree: git submodule update --init --recursive, or one of its extras)"
        )
    return f"{how}: {place.words} imports it" if place.words else how


def _without_name(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a name that a module does not define."""
    if (found := _NO_NAME.search(raised.message)) is None:
        return ""
    name, partly, module, path = found.groups()
    top = module.partition(".")[0]
    if partly:
        return f"{module} imports itself through other modules, or a file called {top}.py hides the package: look at {path or 'the traceback'}"
    importer = place.words or "the importer"
    if _NAMESPACE in raised.message:
        return (
            f"Python found only a folder called {top}, without the package: pip install --force-reinstall {distribution(top)} (uv sync) with the job's Python, or, if a folder of that name "
            f"in the working directory hides it, start the job from another folder (python -c 'import {top}; print({top}.__path__)' shows which one is imported)"
        )
    if place.package == top:
        return (
            f"the installation of {top} mixes two releases: pip install --force-reinstall {distribution(top)}"
        )
    of_package = f" (pip show {place.package})" if place.package else ""
    return (
        f"the installed {_dated(top, lines)} has no {name}, which {importer} imports from {module}: they are of different releases. Install the {top} that "
        f"{importer} was made for{of_package}{_since(name, module)}, or the {place.package or 'code'} for this {top}"
    )


def _since(name: str, module: str) -> str:
    """Return the command that installs a release of a package whose module has a name, after a comma; "" if it is not known.

    An empty name stands for the module itself.
    """
    package = module.partition(".")[0]
    limits = bounds_of(module, name) or (bounds(name, package) if name else "")
    return f", pip install '{distribution(package)}{limits}'" if limits else ""


def _undefined(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a name that a package imports only if a fitting release of another one is installed."""
    found = _UNDEFINED.search(raised.message) if raised.name == "NameError" else None
    if found is None or not place.package or not found[1][:1].isupper():
        return ""
    others = [(package, limits) for package, limits in owners_of(found[1]) if package != place.package]
    owner, limits = others[0] if len(others) == 1 else (owner_of(found[1]), "")
    if owner == place.package:
        owner, limits = "", ""
    limits = limits or bounds(found[1], owner)
    if not owner:
        return (
            f"{place.package} imports {found[1]} only if the package that defines it is installed in a release that fits, and here it is not: look at the conditional import at the top "
            f"of {place.at.partition(':')[0]} (is_..._available) and at what {place.package} requires (pip check), and install that package"
        )
    return (
        f"{place.package} imports {found[1]} only if {owner} is installed in a release that has it, and the installed {_dated(owner, lines)} does not: "
        f"pip install '{distribution(owner)}{limits}'{'' if limits else ' in a newer release'}, or a {place.package} that requires less"
    )


def _divisible(raised: Raised, lines: Sequence[Line]) -> str:
    """Return advice on a number that must be a multiple of another one, with the values that would do."""
    found = _MULTIPLE.search(" ".join(raised.plain.split())[:_LONGEST])
    if found is None or raised.name in _OUTSIDE:
        return ""
    number, factor = int(found[2]), int(found[4])
    if not factor or not number % factor:
        return ""
    first, second = (_FILLERS.sub("", words).strip(" ,:=`'\"") for words in (found[1], found[3]))
    fitting = [part for part in range(min(number, factor), 0, -1) if number % part == 0][:_MOST_FIELDS]
    keys = [
        key
        for name in (first, second)
        for key in _given(lines)
        if key.rpartition(".")[2] == name.replace(" ", "_")
    ]
    named = f" ({', '.join(dict.fromkeys(keys))})" if keys else ""
    return f"make {first} a multiple of {second}{named}: {second} of {' or '.join(map(str, fitting))} divides {number}, or {first} of {-(-number // factor) * factor} is the next multiple of {factor}"


def _of_shapes(raised: Raised) -> str:
    """Return advice on weights whose shapes are not those of the model."""
    functions = " ".join(frame.function for frame in own_frames(raised.frames)[-_NEAREST:])
    return mismatched(raised.message[: 4 * _LONGEST], functions)


def _called(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on an argument that a function does not accept."""
    found = _CALL.search(raised.message)
    if found is None and place.package and (unnamed := _UNNAMED_CALL.match(raised.message)):
        return (
            f"{place.package} passes {unnamed[1]} to a class that does not accept it: they are of different releases. Install the release of the class's "
            f"package that {place.package} was made for (pip show {place.package}), or a newer {place.package}"
        )
    if found is None or raised.name != "TypeError":
        return ""
    function, what, keyword = found.groups()
    cls = function.rpartition(".")[0].rpartition(".")[2] or function
    owner = owner_of(cls)
    is_other = place.caller not in {"", "verl"} and function.endswith("__init__") and owner != "transformers"
    if owner and owner == place.package and is_other:
        if ":" in place.caller:
            return f"correct the arguments at {place.caller}: {function} of {_dated(owner, lines)} does not accept {keyword or 'them'}; or install a {owner} that does"
        return (
            f"install the {owner} that {place.caller} requires (pip install '{place.caller}[{owner}]', or as pip show {place.caller} names it), or a {place.caller} for this "
            f"{_dated(owner, lines)}: {place.caller} passes {function} {keyword or 'arguments'}, which it does not accept"
        )
    if owner and owner == place.package and keyword and re.search(rf"\b{keyword}\s*=", place.code):
        return f"{_dated(owner, lines)} passes {keyword} to its own {function}, which does not accept it: a fault of this release, or files of two releases are mixed. Install a newer {distribution(owner)} (pip install -U --force-reinstall {distribution(owner)}), within what {place.caller or 'the job'} accepts"
    if owner and owner == place.package and len(raised.frames) > 1:
        return f"a class of the job or of another package no longer fits {function} of this {_dated(owner, lines)}: install the {owner} that it was made for"
    of = f" of {_dated(owner, lines)}" if owner else ""
    if place.package == "" and place.words:
        other = f", or install a {owner} that accepts it" if owner else ""
        fault = (
            f"does not accept {keyword}" if keyword else "is called with arguments that it does not accept"
        )
        return f"{function}{of} {fault}: correct the call at {place.words}{other}"
    if not place.package:
        return ""
    if owner:
        return (
            f"{place.package} calls {function}{of} with arguments that it does not accept ({what.partition(' (')[0]}): they are of different releases. "
            f"Install the {owner} that {place.package} requires (pip show {place.package}), or a {place.package} for this {owner}"
        )
    if other := _served(raised.frames, place.package):
        return (
            f"{place.package} calls {function} of {other} with arguments that it does not accept: they are of different releases. Install the {distribution(other)} that "
            f"{place.package} requires (pip show {place.package}), or a newer {place.package}"
        )
    if keyword and _PASSED_ON.search(place.code) and not re.search(rf"\b{keyword}\b", place.code):
        return (
            f"{keyword} comes from a configuration that {place.at} passes on ({place.code}), and this {function.rpartition('.')[0] or function} does not take it: remove {keyword} from that "
            f"configuration, or install the {place.package} for which it was written"
        )
    if "." not in function:
        return (
            f"{place.package} calls {function} with arguments that it does not accept: {place.package} and the package that provides {function} are of different releases. "
            f"Install the release of that package that {place.package} names (its requirements, Dockerfile or README), or a newer {place.package}"
        )
    return (
        f"{place.package} calls {function} with arguments that it does not accept: the class belongs to the job or to another package, and was written for another "
        f"{_dated(place.package, lines)}. " + (f"Give the function a parameter {keyword}, or install" if keyword else "Install")
        + f" the {place.package} that it was written for"
    )  # fmt: skip


def _served(frames: Sequence[Frame], package: str) -> str:
    """Return the other package that a package calls in a file named after it, "" if the deepest place is in no such file."""
    own = own_frames(frames)
    words = re.findall(r"[a-z]\w*", own[-1].path.rpartition(f"/{package}/")[2]) if own else []
    return next((word for word in words if is_served(word) and word != package), "")


def _without_attribute(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on an attribute that a module, or an object of a well-known class, does not have."""
    if raised.name != "AttributeError":
        return ""
    if member := _absent_member(raised, place):
        return member
    if found := _NO_ATTRIBUTE.search(raised.message):
        module, name = found.groups()
        top = module.partition(".")[0]
        if place.package == top and not raised.frames[-1].path.endswith("__init__.py"):
            return (
                f"{place.at} of this {_dated(top, lines)} uses {name}, which its own {module} does not define: the copy mixes two states. Update it (git pull, pip install -e . again), "
                f"or correct that line"
            )
        user = place.words if place.package != top else "another package"
        release = (
            f"install the {distribution(top)} that {place.package} was made for (pip show {place.package}, its installation guide){_since(name, module)}, or the {place.package} for this one"
            if place.package not in {"", top, REMOTE_CODE}
            else f"install another release (pip show {top})"
        )
        return (
            f"the {_dated(top, lines)} that was imported has no {name}, which {user or 'the caller'} uses: {release}, or, if a "
            f"file or folder called {top} in the working directory hides it, start the job from another folder "
            f"(python -c 'import {top}; print({top}.__file__)' shows which one is imported)"
        )
    if _ENCODED.search(raised.message):
        return (
            "transformers 5 returns a BatchEncoding, not token ids, from apply_chat_template(tokenize=True): pip install 'transformers<5', or install a newer "
            f"{place.package or 'release of the code'}, or pass return_dict=False there"
        )
    if found := _NO_MEMBER.search(raised.message):
        cls, name = found[1] or found[3] or found[5], found[2] or found[4] or found[6]
        engine = next(
            (package for package in ("sglang", "vllm", "megatron") if name.startswith(f"{package}_")), ""
        )
        if cls == "Namespace" and engine and place.package not in {"", engine}:
            return (
                f"{place.words} makes its arguments from those of {engine}, and the installed {_dated(engine, lines)} has no {name.removeprefix(f'{engine}_')}: they are of different releases. "
                f"Install the {engine} that {place.words} names (its Dockerfile or image of a fixed tag, not latest), or a newer {place.words}"
            )
        if (wrapped := _wrapped(cls, name, place)) or (other := _of_subclass(cls, name, place)):
            return wrapped or other
        owner = owner_of(cls)
        served = _served(raised.frames, place.package) if owner else ""
        if served and not any(package_of(frame) == owner for frame in raised.frames):
            owner = served  # several packages have a class of this name
        if owner and place.words and place.package != owner:
            return (
                f"{cls} of the installed {_dated(owner, lines)} has no {name}, which {place.words} uses: install the {owner} that it was made for "
                f"(pip show {place.package or owner}), or a newer {place.package or 'release of the code'}"
            )
    return ""


def _absent_member(raised: Raised, place: _Place) -> str:
    """Return advice on a member that an enumeration of another package does not have: the message is its name alone."""
    found = _BARE.match(raised.message.strip())
    used = re.search(rf"\b([A-Z]\w+)\.{found[1]}\b", place.code) if found is not None else None
    if found is None or used is None:
        return ""
    owner = owner_of(used[1])
    file = place.at.partition(":")[0]
    package = (
        distribution(owner) if owner else f"the package from which {file} imports {used[1]} (at its top)"
    )
    return (
        f"{used[1]} of the installed {owner or 'release'} has no member {found[1]}, which {place.words or 'the caller'} uses: "
        f"pip install -U {package}, or the {place.package or 'code'} for this release"
    )


def _wrapped(cls: str, name: str, place: _Place) -> str:
    """Return advice on an attribute of a model that is looked up on what wraps the model."""
    if _WRAPPER.fullmatch(cls) is None:
        return ""
    user = place.words or "the caller"
    return (
        f"{cls} wraps the model, and {user} looks for {name} on the wrapper: use the model inside it (model.module, accelerator.unwrap_model, get_base_model, pretrained_model), or pass {user} the plain model, such as "
        "AutoModelForCausalLM, if it wraps it by itself or needs no value head"
    )


def _of_subclass(cls: str, name: str, place: _Place) -> str:
    """Return advice on an attribute that a class of one package expects of the class of another one which it extends, or which extends it."""
    if cls == "TrainingArguments" and place.package == "trl":
        return "pass the trainer the configuration class of its own (SFTConfig, GRPOConfig, DPOConfig) instead of TrainingArguments, or install a trl before 0.9, which took these arguments by themselves"
    base = extended(cls)
    owner = owner_of(base)
    if not owner or owner_of(cls) or not place.caller or not re.search(rf"\bself\.{name}\b", place.code):
        return ""
    if owner not in {place.package, place.caller} and base != "Trainer":
        return ""
    library = place.package if ":" in place.caller else place.caller
    return (
        f"{cls} extends a class of {library}, which sets or expects {name} in other releases: {cls} was written for another {library}. Install the {library} that its project names "
        f"(README, requirements{'' if place.package in {'', library} else f', pip show {place.package}'}), or set {name} in the constructor of {cls}"
    )


def _unlinked(raised: Raised) -> str:
    """Return advice on a compiled file built for another release, or a library that the loader cannot find."""
    if found := _SYMBOL.search(raised.message):
        path = ("", *raised.message[: found.start()].split())[-1]
        installed = _PACKAGE.search(path)
        package = installed[1] if installed else path.rpartition("/")[2].partition(".")[0]
        named = distribution(re.sub(r"_\d?_?cuda$|_2$", "", package)) if package else "the package"
        if re.search(r"c10|torch|aten|_ZN2at", found[1]):
            return f"{package} was built for another torch: reinstall {named} for the installed torch (pip install --force-reinstall --no-cache-dir --no-build-isolation {named}), or rebuild it"
        return ""
    if found := _BUILT.search(raised.message):
        return (
            f"it is compiled when it is first used, and that failed: remove {found[1]}, install ninja and a CUDA toolkit of torch's CUDA (nvcc, CUDA_HOME) with the job's Python on every node, and read the first "
            "error of the next run; or install a newer release of the package that compiles it, which may bring it compiled or do without"
        )
    if (found := _LIBRARY.search(raised.message)) and (wheel := cuda_wheel(found[1])):
        cuda = found[1].rpartition(".so.")[2].partition(".")[0]
        return (
            f"the package that was imported was built for the CUDA of {found[1]}, which this environment does not have: install its build for the CUDA of the installed torch (torch.version.cuda; "
            f"many projects offer wheels for each, such as cu12 and cu13), or pip install {wheel} and add its lib folder to LD_LIBRARY_PATH if torch is for CUDA {cuda} too"
        )
    if found := _LIBRARY.search(raised.message):
        return f"the loader does not find {found[1]}: add its folder to the process's LD_LIBRARY_PATH (find / -name '{found[1]}*'), or install the package that contains it"
    return ""


def _of_file(raised: Raised) -> str:
    """Return advice on a file that does not exist or may not be used."""
    if raised.name not in _OF_FILES:
        return ""
    found = _FILE.search(raised.message)
    path = (found[2] or found[3]) if found else ""
    if not path and (absent := _ABSENT.search(raised.message)):
        path = absent[1]
    if not path:
        return ""
    node = f" on the node of {raised.line.process}" if raised.line.process else ""
    if raised.name == "FileExistsError":
        return f"{path} exists already{node}: an earlier run left it (remove it, or name another folder), or another process or node created it at the same moment, which a network file system shows late: create it before the start, or start again"
    if raised.name == "PermissionError":
        return f"give the job's user permission for {path}{node} (ls -ld shows its owner)"
    if raised.name == "FileNotFoundError" and (package := _PACKAGE.search(path)):
        return f"the installation of {package[1]} is incomplete: it lacks {path.rpartition('-packages/')[2]}. Reinstall {distribution(package[1])}, or install a newer release{node}"
    if raised.name == "FileNotFoundError" and (saved := _SAVED.match(path)):
        return (
            f"the checkpoint {saved[1]} is incomplete, saved by a run with another number of ranks or another release, or not on this node: it lacks {path[saved.end() :]}. If saving was interrupted, remove that "
            "folder and resume from an earlier step (trainer.resume_mode=resume_path, trainer.resume_from_path=...); otherwise resume with the number of ranks that saved it, or merge it first (python -m verl.model_merger)"
        )
    if raised.name == "FileNotFoundError":
        return f"{path} does not exist{node}: create or mount it on every node, or correct the setting that names it"
    return f"{path} is not a {'file' if raised.name == 'IsADirectoryError' else 'folder'}{node}: correct the setting that names it"


def _of_data(raised: Raised, place: _Place) -> str:
    """Return advice on a column that is missing from the job's data."""
    found = _KEY.fullmatch(raised.message.strip())
    where = raised.frames[-1] if raised.frames else None
    if (
        raised.name == "AssertionError"
        and found is not None
        and ".keys()" in place.code
        and place.package == "verl"
    ):
        return (
            f"the batch has no {found[1]}, which {place.at} takes out of it: the trainer or recipe and the data set are of different releases. Use the recipe of the verl that runs (git log -1 in its tree), or "
            f"the verl that the recipe names; a data set of your own (data.custom_cls) must return {found[1]}"
        )
    if raised.name != "KeyError" or where is None:
        return ""
    table = _TABLE.search(where.code)
    if table is not None and found is not None and place.package and raised.message.strip()[0] in "'\"":
        return (
            f"choose a {table[2]} that {place.words} has in {table[1]}: {found[1]} is not among them ({where.path.rpartition('/')[2]}:{where.line}); it may belong to another "
            f"command, or to a newer release of {place.words}"
        )
    if raised.message.strip().isdecimal() and any(package_of(frame) == "pandas" for frame in raised.frames):
        return "a pandas DataFrame has no row of this number as its label: pass a datasets.Dataset (Dataset.from_pandas) to the trainer, or use iloc or reset_index(drop=True)"
    if missing := _MISSING_KEY.search(raised.message):
        with_ = (
            f": {_KEYS_OF[missing[1]]}"
            if missing[1] in _KEYS_OF
            else ", or a custom worker, agent loop or reward must return it"
        )
        return f"the batch has no {missing[1]}, because the step that computes it did not run{with_}"
    setting = next(
        (match[1] for frame in reversed(raised.frames) if (match := _KEY_SETTING.search(frame.code))), ""
    )
    if absent := _NO_COLUMNS.search(raised.message):
        names = (absent[1] or absent[2]).replace("'", "")
        key = f"set data.{setting} to a column of the data" if setting else "name columns that the data has"
        return (
            f"{key}: it has no {names} (pandas.read_parquet(FILE).columns lists them); where it lies within another column, such as extra_info, "
            f"set {setting or 'prompt_key'} to that column, and prompt_dict_keys or response_dict_keys to [{names}]"
        )
    if found is None:
        return ""
    if setting and place.package in {"verl", "pandas", "datasets"}:
        return f"set data.{setting} to a column of the data: it has no {found[1]} (pandas.read_parquet(FILE).columns lists them)"
    if place.package == "" and place.words and re.search(rf"\[[\"']{found[1]}[\"']\]", where.code):
        return f"if it reads rows of the data, give every row {found[1]}, those of the validation data too: prepare both sets with the same steps"
    if place.package in _TRAINERS and re.search(rf"\[[\"']{found[1]}[\"']\]", where.code):
        return f"the rows of the data have no {found[1]}, which {place.package} reads at {where.path.rpartition('/')[2]}:{where.line}: rename the column, or map the data set to it"
    if place.package != "verl" or not _IN_DATA.search(where.path):
        return ""
    if re.search(rf"(?:meta_info|metrics|timing\w*)\[[\"']{found[1]}[\"']\]", where.code):
        return f"the step before {place.at} does not return {found[1]} in this mode of the rollout: install a newer verl, or a custom agent loop or worker must return it; or use the mode of verl's examples (actor_rollout_ref.rollout.mode)"
    return (
        f"the rows of the data have no {found[1]}, which verl reads at {where.path.rpartition('/')[2]}:{where.line}: prepare the files of data.train_files and "
        f"data.val_files with this column (the scripts in examples/data_preprocess show which ones), or name the column that holds it"
    )


def _of_text(raised: Raised) -> str:
    """Return advice on a file that a parser cannot read."""
    if found := _AT_LINE.search(raised.message):
        return f"correct line {found[2]} of {found[1]}"
    return ""


def _mandatory(raised: Raised) -> str:
    """Return advice on a key without a default that the job does not set."""
    if (found := _MANDATORY.search(raised.message)) is None:
        return ""
    value = "vllm (or sglang)" if found[1].endswith("rollout.name") else "VALUE"
    return f"add {found[1]}={value} to the command: it has no default, and the job does not set it"


def _without_toolkit(raised: Raised, place: _Place) -> str:
    """Return advice on a path below CUDA_HOME that is built although no CUDA toolkit was found."""
    if raised.name != "TypeError" or "NoneType" not in raised.message:
        return ""
    if not any("CUDA_HOME" in frame.code for frame in raised.frames):
        return ""
    return f"no CUDA toolkit was found, and {place.at} needs its nvcc: install the toolkit of torch's CUDA (an image whose name ends in -devel has it), and set CUDA_HOME to its folder before ray start on every node"


def _unread(raised: Raised) -> str:
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
    at = f" at {_at(reader)}" if reader is not None else ""
    return (
        f"the code{at} uses {found[1]}, which the configuration of this job lacks: they are of different releases. Start from the YAML file of the release that runs, install the verl for which "
        f"the recipe or script was made, or a newer verl if both are verl's own; or add the key (+{found[1]}=VALUE)"
    )


def _never_set(raised: Raised, place: _Place) -> str:
    """Return advice on a variable that no branch of a function has set."""
    found = _NEVER_SET.search(raised.message) if raised.name == "UnboundLocalError" else None
    if found is None or not place.package:
        return ""
    name = found[1] or found[2]
    by = _CHOSEN_BY.get(name, "") if place.package == "verl" else ""
    chosen = (
        f"{by} has a value"
        if by
        else "a setting that selects the branch (a name, a backend, a mode) has a value, or an input is empty,"
    )
    return f"no branch at {place.at} sets {name}: {chosen} that {place.package} does not handle there; choose another one, or install a newer {place.package}"


def _twice(raised: Raised, place: _Place) -> str:
    """Return advice on an argument that a call gets twice, as it does if data has a column of the same name."""
    found = _TWICE.search(raised.message) if raised.name == "TypeError" else None
    if found is None:
        return ""
    newer = f", or install a newer {place.package}" if place.package else ""
    return f"{found[1]} gets {found[2]} twice: if a column of the data or a key of the settings that are passed on is called {found[2]}, rename it{newer}"


def _unpacked(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a call that returns more or fewer values than its caller takes."""
    found = _UNPACKED.search(raised.message) if raised.name == "ValueError" else None
    call = _ASSIGNS.match(place.code)
    if found is None or call is None or call[1].startswith(("zip", "enumerate", "range")):
        return ""
    function = call[1].rpartition(".")[2]
    owner = owner_of(function)
    of = f" of the installed {_dated(owner, lines)}" if owner else ""
    count = f"{'more' if found[1] == 'too many' else 'fewer'} than {found[2]} values"
    rest = (
        f" Take the rest too where it is called (a, b, *_ = {function}(...)),"
        if found[1] == "too many"
        else ""
    )
    newer = f" install a {place.package} for this release" if place.package else " change the call"
    return f"{function}{of} returns {count}, which {place.at} does not expect: they are of different releases.{rest}{newer}, or install the {owner or 'release'} that the code was written for".replace(
        ".  ", ". "
    )


def _not_passed(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on an argument that one package does not pass to another, which needs it."""
    found = _NOT_PASSED.search(raised.message) if raised.name in {"AssertionError", "ValueError"} else None
    if found is None or not place.package or place.caller in {"", "verl"} or ":" in place.caller:
        return ""
    both = f"{place.caller} does not pass {found[1] or found[2]}, which {_dated(place.package, lines)} needs here"
    return f"{both}: install a newer {place.caller}, or the {place.package} that it was made for (pip show {place.caller})"


def _empty(raised: Raised) -> str:
    """Return advice on a value that a message calls invalid because it is empty."""
    found = _EMPTY.search(raised.plain[:_LONGEST])
    return f"set the {found[1]}, which is empty: {found[2].strip(' .')}" if found is not None else ""


def _without_release(raised: Raised, place: _Place) -> str:
    """Return advice on a package whose release is compared and unknown, because it is not installed."""
    if (
        raised.name != "TypeError"
        or _NO_RELEASE.search(raised.message) is None
        or not own_frames(raised.frames)
    ):
        return ""
    compared = next(
        (
            found[0]
            for frame in reversed(own_frames(raised.frames))
            if package_of(frame) != "packaging" and (found := _RELEASE.search(frame.code))
        ),
        "",
    )
    if not compared or "'str'" in raised.message.partition(" and ")[0]:
        return ""
    engine = (
        ": if it is the engine's, install vllm or sglang with the job's Python, and set rollout.name to the one that is installed"
        if place.package == "verl"
        else ""
    )
    return f"{compared} is empty: the package whose release {place.at} compares is not installed in this Python, or has no metadata (pip list){engine}"


def _unset(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a setting that the job leaves empty."""
    if names := unset_settings(raised, lines):
        return f"set {' and '.join(names)}, which is empty (null) although {place.at} computes with it; if the script passes a variable there, export it first"
    if raised.name != "TypeError" or _OPERAND.search(raised.message) is None or not place.code:
        return ""
    used = dict.fromkeys(found[1] for found in _ARGUMENTS.finditer(place.code))
    given = " ".join(line.text for line in lines if "--" in line.text).replace("-", "_")
    unset = [name for name in used if f"__{name}" not in given][:_MOST_FIELDS]
    if not unset:
        return ""
    options = ", ".join(f"--{name.replace('_', '-')}" for name in unset)
    which = f"one of {', '.join(unset)}" if len(unset) > 1 else unset[0]
    return f"{which} is None although {place.at} computes with it: set it ({options}, or its key in the configuration), or install a release of {place.package or 'the code'} that has a default for it"


def _no_number(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a text, or on nothing, with which a package computes: a setting whose value is no number."""
    if raised.name != "TypeError" or _OF_TEXT.search(raised.message) is None or not place.package:
        return ""
    is_absent = _NONE in raised.message
    given = {
        key: value.strip("'\"\\")
        for key, value in overrides_of(lines)
        if _IS_NUMBER.search(key) and (value in _ABSENT_VALUES if is_absent else not _NUMBER.fullmatch(value))
    }
    named = ", ".join(f"{key} is {value or 'empty'}" for key, value in list(given.items())[:_MOST_FIELDS])
    code = f" ({place.code})" if _is_telling(place.code) else ""
    if named:
        return f"set to a number what {place.at} computes with{code}: {named}"
    if is_absent:
        return ""
    return f"{place.at} computes with a text where it needs a number{code}: look for a value in quotes, with a comma or a unit, or with an exponent that YAML reads as text (1e-6 must be 1.0e-6), in the settings or the data"


def _demanded(raised: Raised) -> str:
    """Return what the message demands, or the values that it lists."""
    text = _SUGGESTION.sub("", _VALIDATED.sub("", " ".join(raised.plain.split())))
    if raised.name in _SILENT or len(text) > _LONGEST or _OF_PYTHON.search(text):
        return ""
    if raised.name not in _OUTSIDE and (command := _COMMAND.search(text)):
        return (
            f"{_for_shell(command[1].strip())}, as the message requests, with the job's Python, on every node"
        )
    demands = [
        sentence.strip(" .;")
        for sentence in _SENTENCE.findall(text)
        if _ASKS.search(sentence.strip()) and not _REFERS.search(sentence)
    ]
    while len(demands) > 1 and sum(map(len, demands)) > _MOST_WORDS:
        del demands[0]
    if not demands:
        return ""
    request = f"do what the message requests: {'. '.join(demands)}"
    if condition := next(filter(None, map(_CONDITION.search, demands)), None):
        request += f"; or set {condition[1]}=False"
    if variable := next(filter(None, map(_VARIABLE.search, demands)), None):
        request += f"; set {variable[1] or variable[2]} before ray start on every node, or in env_vars of the runtime_env: workers do not get it from the shell that submits the job"
    return request


def _invalid(raised: Raised) -> str:
    """Return advice on the fields that pydantic refuses."""
    model = _OF_MODEL.search(raised.message)
    if model is None:
        return ""
    advice = []
    for name, reason, kind, value in list(_FIELD.findall(raised.message))[:_MOST_FIELDS]:
        if kind == "extra_forbidden":
            advice.append(f"remove {name}, which {model[1]} of this release does not have")
        elif kind == "missing":
            advice.append(f"set {name}, which {model[1]} requires")
        else:
            advice.append(f"set {name} of {model[1]} to what it accepts ({reason}), not {value}")
    return "; ".join(advice)


def _apart(raised: Raised) -> str:
    """Return which two things do not go together, according to the message."""
    for sentence in _SENTENCE.findall(" ".join(raised.plain.split())[:_LONGEST]):
        if found := _APART.match(sentence.strip(" .;")):
            first, second = (part.strip(" .,:") for part in found.groups())
            second = _TIME.sub("", second)
            if second and len(sentence) <= _MOST_WORDS:
                both = f"{first}, or {second}" if first.lower() not in _NAMELESS else second
                return f"change what does not go together, as the message states: {both}"
    return ""


def _unsupported(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on what a package states that it does not support."""
    stated = (
        sentence.strip(" .;") for sentence in _SENTENCE.findall(" ".join(raised.plain.split())[:_LONGEST])
    )
    found = next(filter(_UNSUPPORTED.search, stated), "")
    if not found or len(found) > _MOST_WORDS or raised.name in _OUTSIDE:
        return ""
    which = (
        f"the documentation of {place.package} says which release supports it"
        if place.package
        else "a newer release may support it"
    )
    return f"do without what is not supported, as the message states ({found}); {which}{_installed(place.package, lines)}"


def _without_gpu(raised: Raised) -> str:
    """Return advice on code that uses a GPU in a process of verl that requests none."""
    if "No CUDA GPUs are available" not in raised.message or not _WITHOUT_GPU.match(raised.line.process):
        return ""
    return (
        f"do not use a GPU in {raised.line.process.partition(' ')[0]}, which requests none, so that Ray hides all from it: serve the model that scores or embeds "
        "as a server of its own (vllm serve, reward_model.enable) and call it over HTTP, or compute on the CPU"
    )


def _generated(raised: Raised) -> str:
    """Return advice on code that a package wrote at run time over another one's, as unsloth does with trainers."""
    packages = [
        found
        for frame in raised.frames
        if (found := package_of(frame)) in {"transformers", "trl", "accelerate", "peft"}
    ]
    if raised.name != "NameError" or not packages or raised.frames[-1].path != "<string>":
        return ""
    return (
        f"code that another package generated in place of that of {packages[-1]} does not fit the installed release: install newer releases of that package (pip install -U unsloth unsloth_zoo), "
        "or the accelerate, trl and transformers from before the upgrade, and remove its cache (unsloth_compiled_cache)"
    )


def _of_remote_code(raised: Raised, place: _Place) -> str:
    """Return advice on a fault in the code that a model brings with it."""
    if place.package != REMOTE_CODE or raised.name in _OUTSIDE:
        return ""
    code = f": {place.code}" if _is_telling(place.code) else ""
    return (
        f"the model's own code (trust_remote_code) fails at {place.at}{code}: install the releases of transformers and torch that its model card names (transformers_version in "
        "config.json), download its newest code from the Hub, or load it without trust_remote_code if transformers has the architecture; some models' code supports inference only"
    )


def _of_remote_api(raised: Raised, place: _Place) -> str:
    """Return advice on a name that the code which a model brings with it does not find."""
    is_api = raised.name in {"AttributeError", "ImportError"} or _CALL.search(raised.message)
    return _of_remote_code(raised, place) if is_api and _NONE not in raised.message else ""


def _is_telling(code: str) -> bool:
    """Return whether a source line adds something to the message: one that raises it does not."""
    return bool(code) and not code.startswith("raise ")


def _set_by(raised: Raised, lines: Sequence[Line]) -> dict[str, str]:
    """Return verl's keys for the arguments that a message names and does not give as such keys, if verl runs."""
    if not any("/verl/" in frame.path for frame in raised.frames) and not any(
        "actor_rollout_ref." in line.text for line in lines
    ):
        return {}
    text = raised.plain[:_LONGEST]
    named = [name for name in _NAME.findall(text.replace("-", "_")) if name in _SET_BY]
    keys = {name: _SET_BY[name] for name in named if _SET_BY[name] not in text}
    return dict(list(keys.items())[:_MOST_FIELDS])


def _of_releases(raised: Raised, place: _Place, lines: Sequence[Line]) -> str:
    """Return advice on a fault inside a package that its message does not explain, from the kind of the exception and from what called the package.

    It proposes another release only where the traceback gives a reason: two packages that meet there, or a package that does
    not define what its own code uses.
    """
    package, is_check = place.package, raised.name == "AssertionError"
    if not package or (package in _PASSING and not is_check):
        return ""
    if raised.name not in _INTERNAL | _ON_INPUT and (
        (package not in KNOWN and not is_served(package)) or raised.name in _OUTSIDE
    ):
        return ""
    if is_check and not _is_wordless(raised.message) and package not in _ENGINES:
        return ""
    advice = [_fact(raised, place)]
    if place.caller and ":" not in place.caller:
        shown = "verl-doctor matrix" if place.caller == "verl" else f"pip check, pip show {place.caller}"
        advice.append(
            f"check whether {place.caller} and {_dated(package, lines)} fit ({shown}), and install the releases that {place.caller} requires"
        )
    elif _is_own_fault(raised, package):
        advice.append(
            f"that is a fault of this release of {package}, or files of two releases are mixed: pip install --force-reinstall {distribution(package)} in another release than "
            f"{_dated(package, lines) if _dated(package, lines) != package else 'the installed one'}, the one before if it came with an upgrade, otherwise a newer one"
        )
    else:
        advice.append("if it began with an upgrade, return to the releases before it")
    return "; ".join([*advice, f"search the tracker of {package} for these words"])


def _fact(raised: Raised, place: _Place) -> str:
    """Return what an exception without an explanation states about the package that raised it."""
    package, condition = place.package, in_words(place.code)
    code = f": {place.code}" if _is_telling(place.code) and not condition else ""
    by = f", called by {place.caller}" if place.caller else ""
    if raised.name == "AssertionError":
        if condition:
            where = f" ({by.removeprefix(', ')})" if by else ""
            return f"{package} checks at {place.at}{where} that {condition}; find what sets these values: settings of the job, its data, the weights, or the number of GPUs"
        explained = "" if _is_wordless(raised.message) else "the exception states what is wrong: "
        return f"{explained}a check in {package} fails at {place.at}{code}{by}"
    if _NONE in raised.message:
        return f"a value that {package} needs at {place.at} was never set{code}{by}"
    if raised.name == "KeyError" and _KEY.fullmatch(raised.message.strip()):
        return f"what {package} reads at {place.at}{by} has no {raised.message.strip()}{code}: compare it with what {package} documents for this input, and with the file from which it comes (config.json, the data, the response of a service)"
    if raised.name == "IndexError":
        return f"what {package} reads at {place.at}{by} is empty or shorter than it expects{code}: look for an empty row, response or list in what it was given"
    if raised.name not in _INTERNAL or _OF_INPUT.search(raised.message):
        return f"{package} fails at {place.at} on its input{code}{by}; compare it with what the documentation of {package} requires"
    return f"the code of {package} fails at {place.at}{by}{code}"


def _is_wordless(message: str) -> bool:
    """Return whether a message holds numbers and shapes alone, or nothing: it explains nothing by itself."""
    return re.search(r"[A-Za-z]{3}", re.sub(r"torch\.Size|tensor", "", message)) is None


def _is_own_fault(raised: Raised, package: str) -> bool:
    """Return whether a package uses a name or an attribute of its own that it does not define."""
    if raised.name in {"NameError", "UnboundLocalError"}:
        return True
    found = _NO_MEMBER.search(raised.message) if raised.name == "AttributeError" else None
    if found is None or _OF_INPUT.search(raised.message) or _NONE in raised.message:
        return False
    return owner_of(found[1] or found[3] or found[5]) in {"", package}


def _installed(package: str, lines: Sequence[Line]) -> str:
    version = next(_versions(package, lines), "") if package else ""
    return f" (this is {version})" if version else ""


def _dated(package: str, lines: Sequence[Line]) -> str:
    """Return a package with the release that the log names."""
    version = next(_versions(package, lines), "")
    return f"{package} {version}" if version else package


def _versions(package: str, lines: Sequence[Line]) -> Iterator[str]:
    form = re.compile(
        rf"(?<![\w/.-]){re.escape(package)}(?:==|: +| (?:API server )?version:? | +| \(v?|-)v?(\d+\.\d+(?:\.\d+)?(?:[.+]?(?:post|rc|dev)\w*)?)(?![\w.])",
        re.IGNORECASE,
    )
    for line in lines:
        if found := form.search(line.text):
            yield found[1]
