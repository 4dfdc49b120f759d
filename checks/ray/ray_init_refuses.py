"""RAY147: `ray.init()` refuses what the job passes to it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, reworded, settings
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.init_arguments import KEY, RayInitArguments
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_NAME = re.compile(r"[A-Za-z_]\w*")
_STORE = "object_store_memory"
_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
_TAKES = RayInitArguments(
    names=("address", "num_cpus", "num_gpus", _STORE, "runtime_env"),
    read_from="/env/ray/_private/worker.py:1446",
    smallest_store=75 << 20,
)
_ACCEPTS_MORE = replace(_TAKES, names=(*_TAKES.names, "namespace", "logging_level"))
_GONE = replace(_TAKES, missing_folder="/home/me/gone")
_WITH_RUNTIME_ENV: dict[str, dict[str, object]] = {"ray_kwargs": {"ray_init": {"runtime_env": {}}}}
_COUNTS = replace(_TAKES, numbers=("num_cpus", "num_gpus", _STORE))


def _examples() -> list[Example]:
    return [
        Example(
            "valid arguments",
            (*configured(f"{KEY}.num_cpus=8", f"+{KEY}.{_STORE}=100000000"), _TAKES, RayAddresses()),
        ),
        Example(
            "a misspelt argument",
            (*configured(f"+{KEY}.num_gpu=1"), _TAKES, RayAddresses()),
            "has no argument num_gpu; did you mean num_gpus?",
        ),
        Example(
            "a logging level by its name",
            (
                *configured(f"+{KEY}.logging_level=info"),
                replace(_ACCEPTS_MORE, numbers=("num_cpus", "logging_level")),
                RayAddresses(),
            ),
        ),
        Example(
            "a small object store",
            (*configured(f"+{KEY}.{_STORE}=1000000"), _TAKES, RayAddresses()),
            "Ray requires at least 75.0 MiB",
        ),
        Example(
            "a Ray that already runs",
            (*configured(f"+{KEY}.{_STORE}=1000000"), _TAKES, RayAddresses((ray_place(),))),
        ),
        Example(
            "verl 0.5 and older, which pass only num_cpus",
            (*configured("+ray_init.timeline_json_file=/t.json"), _TAKES, RayAddresses()),
        ),
        Example(
            "a missing folder",
            (*configured(f"+{KEY}.runtime_env.working_dir=/home/me/gone"), _GONE, RayAddresses()),
            "/home/me/gone, which Ray is to upload, does not exist",
        ),
        Example(
            "a level of logging",
            (
                *configured(f"+{KEY}.logging_level=warning", f"+{KEY}.namespace=mine"),
                _ACCEPTS_MORE,
                RayAddresses(),
            ),
        ),
        Example(
            "an unknown level",
            (*configured(f"+{KEY}.logging_level=verbose"), _ACCEPTS_MORE, RayAddresses()),
            "Ray has no logging level verbose",
        ),
        Example(
            "a namespace that is a number",
            (*configured(f"+{KEY}.namespace=7"), _ACCEPTS_MORE, RayAddresses()),
            "a namespace must be a string",
        ),
        Example("a size in bytes", (*configured(f"+{KEY}.{_STORE}=8000000000"), _COUNTS, RayAddresses())),
        Example(
            "a size with a unit",
            (*configured(f"+{KEY}.{_STORE}=8GB"), _COUNTS, RayAddresses()),
            "ray.init() requires a number for object_store_memory, but gets 8GB",
        ),
        Example(
            "a variable as text",
            (*configured(f"+{KEY}.runtime_env.env_vars.OMP_NUM_THREADS='4'"), _TAKES, RayAddresses()),
        ),
        Example(
            "a runtime environment as a mapping",
            (*configured(f"+{KEY}.runtime_env={{env_vars:{{A:b}}}}"), _TAKES, RayAddresses()),
        ),
        Example(
            "no runtime environment",
            (*configured(f"++{KEY}.runtime_env=null", tree=_WITH_RUNTIME_ENV), _TAKES, RayAddresses()),
            "verl merges its own runtime environment with ray_kwargs.ray_init.runtime_env, which is null",
        ),
        Example(
            "variables in a list",
            (*configured(f"+{KEY}.runtime_env.env_vars=['A=b']"), _TAKES, RayAddresses()),
            "ray_kwargs.ray_init.runtime_env.env_vars must be a mapping",
        ),
        Example("no variables", (*configured(f"+{KEY}.runtime_env.env_vars=null"), _TAKES, RayAddresses())),
        Example(
            "a variable as a number",
            (*configured(f"+{KEY}.runtime_env.env_vars.OMP_NUM_THREADS=4"), _TAKES, RayAddresses()),
            "must be strings, but ray_kwargs.ray_init.runtime_env.env_vars.OMP_NUM_THREADS is 4",
        ),
    ]


@check("RAY147", phase="ray", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def ray_init_refuses(
    configuration: Configuration, arguments: RayInitArguments, addresses: RayAddresses | Unknown
) -> Iterator[Finding]:
    """`ray.init()` refuses what the job passes to it.

    ## Why it matters

    verl passes all keys below `ray_kwargs.ray_init` to `ray.init()`, which refuses unknown arguments, an
    object store below its minimum, a `working_dir` that is not a folder, and variables that are numbers. verl
    first merges its own `runtime_env` with the given one, which must be a mapping. The job stops before any
    worker starts.

    ## How to fix

    Correct the name or the value. The accepted arguments are read from the installed Ray.
    """
    given = configuration.get(KEY)
    if not isinstance(given, Mapping):
        return
    for name in given:
        if name not in arguments.names:
            near = next(iter(difflib.get_close_matches(name, arguments.names, 1)), "")
            yield _finding(
                f"ray.init() has no argument {name}" + (f"; did you mean {near}?" if near else ""),
                configuration,
                f"{KEY}.{name}",
                arguments.read_from,
                f"write {KEY}.{near}" if near else f"remove {KEY}.{name}",
                _renamed(configuration, name, near),
            )
    size = configuration.number(f"{KEY}.{_STORE}")
    starts = isinstance(addresses, RayAddresses) and addresses.taken is None
    if starts and size and size < arguments.smallest_store:
        least = arguments.smallest_store
        yield _finding(
            f"an object store of {in_bytes(int(size))} is too small: Ray requires at least {in_bytes(least)}",
            configuration,
            f"{KEY}.{_STORE}",
            arguments.read_from,
            f"set at least {least} bytes, or remove the setting",
            settings(configuration, {f"{KEY}.{_STORE}": least}, f"Ray requires at least {least} bytes"),
        )
    for name, words, remedy, other in _refused_values(given):
        key = f"{KEY}.{name}"
        correction = settings(configuration, {key: other}, effect="")
        yield _finding(words, configuration, key, arguments.read_from, remedy, correction)
    for name, words, remedy in _no_numbers(given, arguments):
        yield _finding(words, configuration, f"{KEY}.{name}", arguments.read_from, remedy)
    for key, words, remedy in _not_merged(configuration, given):
        as_mapping = _as_mapping(configuration, key)
        yield _finding(words, configuration, key, arguments.read_from, remedy, as_mapping)
    for key, value in _not_texts(given):
        yield _finding(
            f"variables in Ray's runtime environment must be strings, but {key} is {value}",
            configuration,
            key,
            "",
            f"quote it twice: \"{key}='{value}'\"",
            _quoted(configuration, key, value),
        )
    if arguments.missing_folder and f"{KEY}.runtime_env.working_dir" in _keys(given):
        yield _finding(
            f"{arguments.missing_folder}, which Ray is to upload, does not exist",
            configuration,
            f"{KEY}.runtime_env.working_dir",
            "",
            "name a folder that exists",
        )


def _not_merged(configuration: Configuration, given: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield what OmegaConf cannot merge with verl's own runtime environment: key, fault, remedy.

    That environment is a mapping with a mapping `env_vars`.
    """
    key = f"{KEY}.runtime_env"
    inner = given.get("runtime_env", {})
    variables = inner.get("env_vars") if isinstance(inner, Mapping) else None
    if inner is None and configuration.override_of(key) is not None:
        yield key, f"verl merges its own runtime environment with {key}, which is null", f"remove {key}"
    elif isinstance(inner, (list, tuple)):
        yield key, f"{key} must be a mapping, as verl merges its own with it", f"write {key}.NAME=VALUE"
    elif isinstance(variables, (list, tuple)):
        yield (
            f"{key}.env_vars",
            f"{key}.env_vars must be a mapping, as verl merges its own with it",
            f"write each variable as +{key}.env_vars.NAME=VALUE",
        )


def _as_mapping(configuration: Configuration, key: str) -> Correction | None:
    """Variables that are listed as `NAME=VALUE`, as Docker has them, become a mapping; null is left out."""
    if key == f"{KEY}.runtime_env" and configuration.get(key) is None:
        return settings(configuration, {key: LEAVE_OUT}, "verl's own runtime environment is used", "")
    word, value = configuration.override_of(key), configuration.get(key)
    pairs = [str(entry).partition("=") for entry in value] if isinstance(value, (list, tuple)) else []
    if word is None or not pairs or not all(_NAME.fullmatch(name) and sign for name, sign, _ in pairs):
        return None
    if any(set(text) & set("'\\") for _, _, text in pairs):
        return None
    written = ",".join(f"{name}:'{text}'" for name, _, text in pairs)  # Ray accepts only strings
    return reworded(
        word, f"{word.text.partition('=')[0]}={{{written}}}", "verl merges its own mapping with it"
    )


def _refused_values(given: Mapping[str, object]) -> Iterator[tuple[str, str, str, str]]:
    """Yield arguments with a value that `ray.init()` raises for: name, fault, remedy and another value."""
    namespace, level = given.get("namespace"), given.get("logging_level")
    if isinstance(namespace, (bool, int, float)):
        yield (
            "namespace",
            f"a namespace must be a string, but ray.init() gets {namespace}",
            f"quote it twice: \"{KEY}.namespace='{namespace}'\"",
            f"'{namespace}'",
        )
    if isinstance(level, str) and "${" not in level and level.upper() not in _LEVELS:
        near = next(iter(difflib.get_close_matches(level.lower(), map(str.lower, _LEVELS), 1)), "info")
        yield "logging_level", f"Ray has no logging level {level}", f"write {KEY}.logging_level={near}", near


def _no_numbers(given: Mapping[str, object], arguments: RayInitArguments) -> Iterator[tuple[str, str, str]]:
    """Yield arguments that are counted or added up, and are given as text: name, fault and remedy."""
    for name in arguments.numbers:
        value = given.get(name)
        if isinstance(value, str) and "${" not in value and name != "logging_level":  # a level has a name
            number = "a number of bytes" if name == _STORE else "a number"
            yield (
                name,
                f"ray.init() requires a number for {name}, but gets {value}",
                f"write {number} without quotes or a unit",
            )


def _keys(given: Mapping[str, object]) -> list[str]:
    inner = given.get("runtime_env")
    return [f"{KEY}.runtime_env.{name}" for name in inner] if isinstance(inner, Mapping) else []


def _not_texts(given: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the variables of the runtime environment that YAML parses as numbers, booleans or null."""
    inner = given.get("runtime_env")
    variables = inner.get("env_vars") if isinstance(inner, Mapping) else None
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        if value is None or isinstance(value, (bool, int, float)):
            yield f"{KEY}.runtime_env.env_vars.{name}", value


def _quoted(configuration: Configuration, key: str, value: object) -> Correction | None:
    word = configuration.override_of(key)
    if word is None or value is None:
        return None
    text = str(value).lower() if isinstance(value, bool) else word.text.partition("=")[2]
    return reworded(word, f"{word.text.partition('=')[0]}='{text}'", "Ray accepts only strings")


def _finding(
    message: str,
    configuration: Configuration,
    key: str,
    read_from: str,
    remedy: str,
    correction: Correction | None = None,
) -> Finding:
    word: OverrideWord | None = configuration.override_of(key)
    return Finding(
        message,
        Evidence(found=word.text if word else f"{key}={configuration.get(key)}", read_from=read_from),
        location=place(word) if word else None,
        remedy=remedy,
        subject=Subject("setting", key),
        stops=(EVERY_JOB,),
        **healed("RAY147", correction),
    )


def _renamed(configuration: Configuration, name: str, near: str) -> Correction | None:
    """The argument with a similar name, unless it is given too; otherwise, remove the word."""
    word: OverrideWord | None = configuration.override_of(f"{KEY}.{name}")
    if word is None:
        return None
    if near and configuration.override_of(f"{KEY}.{near}") is None:
        return reworded(
            word, word.text.replace(f".{name}=", f".{near}=", 1), f"{near} is the closest name to {name}"
        )
    return reworded(word, None, effect=f"Ray starts without {word.text}")
