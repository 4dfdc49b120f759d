"""LOAD102: the installed transformers does not support the model's type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_external_module
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.support import TransformersSupport
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_TRUST = ("actor_rollout_ref.model.trust_remote_code", "model.trust_remote_code")
_MODEL = Model(
    folder="/models/qwen3.5",
    named_by="--model",
    architectures=("Qwen3_5ForCausalLM",),
    model_type="qwen3_5",
    head_size=128,
)
_TABLE = "/env/transformers/models/auto/configuration_auto.py"
_KNOWN = TransformersSupport("5.9.0", known=True, nearest=("qwen3_5",), read_from=_TABLE)
_OLD = TransformersSupport("4.57.6", known=False, nearest=("qwen3",), read_from=_TABLE)


def _examples() -> list[Example]:
    return [
        Example("transformers supports it", (_MODEL, _KNOWN)),
        Example("the model brings its own code", (replace(_MODEL, own_code=True), _OLD), "trust_remote_code"),
        Example(
            "the job does not allow the model's own code to run",
            (replace(_MODEL, own_code=True), _OLD, *configured(tree={"model": {"trust_remote_code": False}})),
            "trust_remote_code=True allows to run",
        ),
        Example(
            "transformers is older than the model", (_MODEL, _OLD), "does not support model type qwen3_5"
        ),
    ]


@check("LOAD102", phase="workers", requires={"LOAD101"}, examples=_examples)
def model_type_unknown(
    model: Model, support: TransformersSupport, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """The installed transformers does not support the model's type.

    ## Why it matters

    verl loads the configuration and the tokenizer with transformers before anything else: `The checkpoint you
    are trying to load has model type ... but Transformers does not recognize this architecture`. A newer
    transformers may not fit the installed vLLM and verl, so choose all three together.

    ## How to fix

    `verl-doctor matrix` shows which releases work together. A model with its own code (`auto_map` in its
    configuration) needs `actor_rollout_ref.model.trust_remote_code=True`, which runs code from the model's
    folder.
    """
    if support.known:
        return
    version = f"transformers {support.version}".strip()
    near = f" (known: {', '.join(support.nearest)})" if support.nearest else ""
    message = f"{version} does not support model type {model.model_type}{near}"
    remedy = (
        "install a transformers that supports it, if vLLM and verl allow one; verl-doctor matrix shows "
        "which do"
    )
    if model.own_code:
        message += "; the model has its own code, which trust_remote_code=True allows to run"
        remedy = f"set {_TRUST[0]}=True if you trust that code"
    yield Finding(
        message,
        Evidence(model.model_type, "a model type of its table", support.read_from),
        subject=Subject("model", model.folder),
        location=Location(f"{model.folder}/config.json"),
        remedy=remedy,
        severity="info" if model.own_code and not _refuses_code(configuration) else "error",
    )


def _refuses_code(configuration: Configuration | Unknown) -> bool:
    """Whether the job bars the model's own code, and names no module that may register the type."""
    if isinstance(configuration, Unknown) or not configuration.complete or has_external_module(configuration):
        return False
    key = next((key for key in _TRUST if configuration.has(key)), "")
    return bool(key) and configuration.get(key) is False
