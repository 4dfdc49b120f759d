"""LOAD108: the rollout uses a load format that this vLLM does not have, or whose package is missing."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._loading import LOAD_FORMAT, PACKAGE_OF, VLLM, job, load_format
from verl_doctor.checks.shared.configuration import place, release
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.vllm.loading import VllmLoading
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import closest

_PLAIN = Packages((Distribution(name="vllm", version="0.31.0", location="/env/vllm.dist-info"),))
_STREAMER = Packages(
    (Distribution(name="runai-model-streamer", version="0.15.0", location="/env/runai.dist-info"),)
)


def _irrelevant(configuration: Configuration) -> str | None:
    if configuration.get("actor_rollout_ref.rollout.name") != "vllm":
        return "the rollout does not use vLLM"
    return None if configuration.override_of(LOAD_FORMAT) else "the job does not set load_format"


def _examples() -> list[Example]:
    return [
        Example("verl's default", (job(), VLLM, _PLAIN)),
        Example("a valid format", (job(f"{LOAD_FORMAT}=safetensors"), VLLM, _PLAIN)),
        Example("case does not matter", (job(f"{LOAD_FORMAT}=AUTO"), VLLM, _PLAIN)),
        Example("a loader that is installed", (job(f"{LOAD_FORMAT}=runai_streamer"), VLLM, _STREAMER)),
        Example(
            "a loader that is not",
            (job(f"{LOAD_FORMAT}=runai_streamer"), VLLM, _PLAIN),
            "needs the package runai-model-streamer",
        ),
        Example(
            "vLLM removed the format",
            (job(f"{LOAD_FORMAT}=bitsandbytes"), VLLM, _PLAIN),
            "vLLM 0.31.0 has no load format bitsandbytes",
        ),
        Example(
            "a value of verl before 0.6",
            (job(f"{LOAD_FORMAT}=dummy_dtensor"), VLLM, _PLAIN),
            "verl 0.6.1 passes it on unchanged",
        ),
    ]


@check("LOAD108", phase="engine", applies=_irrelevant, examples=_examples)
def load_format_unknown(
    configuration: Configuration, vllm: VllmLoading, packages: Packages
) -> Iterator[Finding]:
    """The rollout uses a load format that this vLLM does not have, or whose package is missing.

    ## Why it matters

    verl passes `rollout.load_format` on to vLLM, which refuses unknown values (`Unknown load_format`, `is not
    supported`) when its servers start, minutes into the run. `dummy_dtensor` and `dummy_hf` were values of
    verl before 0.6. Loaders such as `runai_streamer` are separate packages, imported only when used.

    ## How to fix

    Remove the setting: verl's default is `dummy`, with which the trainer supplies the weights to vLLM. Or
    install the package.
    """
    word = configuration.override_of(LOAD_FORMAT)
    format_ = load_format(configuration)
    if word is None or not format_ or _translated(configuration, format_):
        return
    package = PACKAGE_OF.get(format_, "")
    if format_ in vllm.formats and (not package or packages.get(package)):
        return
    near = ""
    if format_ in vllm.formats:
        message = f"load_format={format_} needs the package {package}, which is not installed"
        remedy = f"install {package}, or remove load_format"
    else:
        near = "dummy" if format_.startswith("dummy") else closest(format_, vllm.formats)
        old = f", and {release(configuration)} passes it on unchanged" if format_.startswith("dummy") else ""
        message = f"vLLM {vllm.version} has no load format {format_}{old}"
        remedy = (
            f"set {LOAD_FORMAT}={near}" if near else "remove load_format"
        ) + ", unless a vLLM plugin provides it"
    yield Finding(
        message,
        Evidence(word.text, f"one of {', '.join(vllm.formats)}", vllm.read_from),
        subject=Subject("setting", LOAD_FORMAT),
        location=place(word),
        remedy=remedy,
        **healed("LOAD108", settings(configuration, {LOAD_FORMAT: near or LEAVE_OUT})),
    )


def _translated(configuration: Configuration, format_: str) -> bool:
    """Whether verl itself turns the value into vLLM's `dummy`.

    It does so for its own default values, and in its synchronous rollout.
    """
    default = configuration.default(LOAD_FORMAT)
    own = isinstance(default, str) and default.startswith("dummy_")
    return format_.startswith("dummy") and (
        own or configuration.get("actor_rollout_ref.rollout.mode") == "sync"
    )
