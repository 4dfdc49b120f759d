"""LOAD117: the tokenizer has no chat template that Jinja compiles, but the job applies one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from verl_doctor.checks.shared.configuration import configured, own_prompts, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.chat_template_syntax import ChatTemplateError
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Subject,
    check,
)
from verl_doctor.toolkit.text import listed

_PATH = "actor_rollout_ref.model.path"
_TUNED = "model.path"
_PROGRAMS = ("/trainer/main_ppo.py", "/trainer/sft_trainer.py")
_TEMPLATE = "actor_rollout_ref.model.custom_chat_template"
_TUNED_TEMPLATE = "model.custom_chat_template"
_ARGUMENTS = "data.apply_chat_template_kwargs"
_KINDS = (".jinja", ".jinja2", ".j2", ".txt", ".json")
_NONE = ChatTemplate("/models/base")
_UNCLOSED = ChatTemplateError(
    file="/models/x/chat_template.jinja", message="Unexpected end of template", line=3
)
_NO_TOKENIZER = ChatTemplate("/models/base", has_tokenizer=False)


def _irrelevant(configuration: Configuration) -> str | None:
    if not configuration.program.endswith(_PROGRAMS):
        return "the job starts neither verl's main_ppo nor its SFT trainer"
    own = own_prompts(configuration)
    return f"{own} may build prompts without a template" if own else None


def _tuning(template: str) -> tuple[Configuration]:
    (found,) = configured(f"++{_TUNED_TEMPLATE}={template}", tree={"model": {"path": "/models/x"}})
    return (replace(found, program="/env/verl/trainer/sft_trainer.py"),)


def _examples() -> list[Example]:
    return [
        Example(
            "the tokenizer has a template",
            (*configured(), ChatTemplate(folder="/models/x", found_in="/models/x/tokenizer_config.json")),
        ),
        Example(
            "a template that Jinja refuses",
            (
                *configured(),
                ChatTemplate(folder="/models/x", found_in="/models/x/chat_template.jinja", is_doubtful=True),
                _UNCLOSED,
            ),
            "Jinja refuses the chat template in /models/x/chat_template.jinja: Unexpected end of template",
        ),
        Example(
            "a template of the job's own that Jinja refuses",
            (
                *configured(f"++{_TEMPLATE}=mine"),
                ChatTemplate(folder="/models/x", found_in=_TEMPLATE, is_doubtful=True, text="mine"),
                replace(_UNCLOSED, file=_TEMPLATE),
            ),
            f"Jinja refuses the chat template in {_TEMPLATE}",
        ),
        Example(
            "several templates, and one is the default",
            (
                *configured(),
                ChatTemplate(
                    folder="/models/x", found_in="/models/x/tokenizer_config.json", names=("default", "rag")
                ),
            ),
        ),
        Example(
            "several templates, of which one is for tools",
            (
                *configured(),
                ChatTemplate(
                    folder="/models/x", found_in="/models/x/tokenizer_config.json", names=("chat", "tool_use")
                ),
            ),
        ),
        Example(
            "several templates, and none is the default",
            (
                *configured(),
                ChatTemplate(
                    folder="/models/x", found_in="/models/x/tokenizer_config.json", names=("chat", "rag")
                ),
            ),
            "has the chat templates chat, rag, and none is the default",
        ),
        Example(
            "one of several is chosen",
            (
                *configured(f"++{_ARGUMENTS}.chat_template=rag"),
                ChatTemplate(
                    folder="/models/x", found_in="/models/x/tokenizer_config.json", names=("chat", "rag")
                ),
            ),
        ),
        Example("the job sets a template", (*configured(f"++{_TEMPLATE}=mine"), _NONE)),
        Example(
            "a path in place of a template",
            (*configured(f"++{_TEMPLATE}=/home/me/chat.jinja"), _NONE),
            f"{_TEMPLATE} is a path, but verl takes it for the template itself",
        ),
        Example(
            "a path, and the trainer finds that turns do not add up",
            (*_tuning("/home/me/chat.jinja"), _NONE),
            "is a path",
        ),
        Example("as an argument", (*configured(f"++{_ARGUMENTS}.chat_template=mine"), _NONE)),
        Example("the user's own dataset", (*configured("++data.custom_cls.path=/home/me/data.py"), _NONE)),
        Example(
            "no tokenizer",
            (*configured(f"{_PATH}=/models/base"), _NO_TOKENIZER),
            "/models/base has no tokenizer",
        ),
        Example(
            "a base model",
            (*configured(f"{_PATH}=/models/base"), _NONE),
            "the tokenizer in /models/base has no chat template",
        ),
    ]


@check("LOAD117", applies=_irrelevant, examples=_examples, since="0.2")
def chat_template_missing(
    configuration: Configuration, template: ChatTemplate, error: ChatTemplateError | Unknown
) -> Iterator[Finding]:
    """The tokenizer has no chat template that Jinja compiles, but the job applies one.

    ## Why it matters

    verl's prompts are lists of messages, which it turns into text with the tokenizer's chat template.
    Tokenizers of base models often have none: `Cannot use chat template functions because
    tokenizer.chat_template is not set`, for every prompt of the first batch, after the model is loaded. A
    folder without tokenizer files gets just as far, because transformers 5 creates an empty tokenizer from
    it. verl 0.9 then reports `no materializable trajectories`. A template with a syntax error gets there as
    well. `custom_chat_template` is the text of a template: a path there becomes every prompt, which the SFT
    trainer notices and PPO does not.

    ## How to fix

    Use the tokenizer of the instruct variant (`actor_rollout_ref.model.tokenizer_path` if this verl has it),
    put a `chat_template.jinja` beside the tokenizer, or set `actor_rollout_ref.model.custom_chat_template`.
    """
    tunes = configuration.program.endswith(_PROGRAMS[1])
    word = configuration.override_of(_TUNED if tunes else _PATH)
    if not template.has_tokenizer:
        yield Finding(
            f"{template.folder} has no tokenizer",
            Evidence(
                found="no tokenizer.json, no tokenizer_config.json, no vocabulary",
                wanted="the files of a tokenizer beside config.json",
                read_from=template.folder,
            ),
            location=place(word) if word else None,
            remedy=f"copy the tokenizer's files to {template.folder}; hf download fetches them",
            subject=Subject("model", template.folder, "tokenizer"),
            stops=(EVERY_JOB,),
            phase="workers" if tunes else "first batch",
        )
        return
    if configuration.get(f"{_ARGUMENTS}.chat_template") not in (None, "", MISSING):
        return
    if (named := _path(configuration, template, tunes=tunes)) is not None:
        yield named
        return
    is_set = any(configuration.get(key) not in (None, "", MISSING) for key in (_TEMPLATE, _TUNED_TEMPLATE))
    if is_set and not template.text:
        return
    if isinstance(error, ChatTemplateError):
        own = configuration.override_of(error.file) if template.text else None
        yield Finding(
            (
                f"Jinja refuses the chat template in {error.file}: {error.message} (line {error.line} of "
                "the template)"
            ),
            Evidence(error.message, "a template that Jinja compiles", error.file),
            location=place(own) if own else None if template.text else Location(error.file),
            remedy="correct the template"
            if template.text
            else f"correct the template, or download {Path(error.file).name} again",
            subject=Subject("setting" if template.text else "file", error.file, "template"),
            stops=(EVERY_JOB,),
            phase="workers" if tunes else "first batch",
            **healed("LOAD117", _without(configuration, error.file, template) if template.text else None),
        )
    if template.names and not {"default", "tool_use"} & set(template.names):
        yield Finding(
            (
                f"{template.found_in} has the chat templates {listed(template.names, 3)}, and none is the "
                "default"
            ),
            Evidence(listed(template.names, 6), "a template named default", template.found_in),
            location=Location(template.folder),
            remedy=f"name the template to use default, or set {_ARGUMENTS}.chat_template to one of the names",
            subject=Subject("file", template.folder, "template"),
            stops=(EVERY_JOB,),
            phase="workers" if tunes else "first batch",
        )
    if template.found_in:
        return
    yield Finding(
        f"the tokenizer in {template.folder} has no chat template",
        Evidence(
            found="no chat_template in tokenizer_config.json, no chat_template.jinja",
            wanted="a chat template",
            read_from=f"{template.folder}/tokenizer_config.json",
        ),
        location=place(word) if word else None,
        remedy=(
            f"put a chat_template.jinja into {template.folder}, or set "
            f"{'model.custom_chat_template' if tunes else _TEMPLATE}"
        ),
        subject=Subject("model", template.folder),
        stops=(EVERY_JOB,),
        phase="workers" if tunes else "first batch",
    )


def _without(configuration: Configuration, key: str, template: ChatTemplate) -> Correction | None:
    """The tokenizer's own template in place of the job's, if it has one."""
    if not template.of_tokenizer:
        return None
    effect = f"prompts are built with the tokenizer's template, in {template.of_tokenizer}"
    return settings(configuration, {key: LEAVE_OUT}, effect=effect)


def _path(configuration: Configuration, template: ChatTemplate, *, tunes: bool) -> Finding | None:
    """A path in place of a template.

    The SFT trainer stops, as each turn becomes the same text, and so does a whole talk.
    """
    key = _TUNED_TEMPLATE if tunes else _TEMPLATE
    value, word = configuration.get(key), configuration.override_of(key)
    if not isinstance(value, str) or word is None or "{" in value or not value.endswith(_KINDS):
        return None
    stops = tunes and configuration.get("data.ignore_input_ids_mismatch") is False
    return Finding(
        f"{key} is a path, but verl takes it for the template itself",
        Evidence(word.text, "the text of a template"),
        location=place(word),
        remedy=f"put the file beside the tokenizer as chat_template.jinja, and leave {key} out",
        subject=Subject("setting", key, "template"),
        severity=None if stops else "warning",
        stops=(EVERY_JOB,) if stops else (),
        phase="first batch",
        **healed("LOAD117", _without(configuration, key, template) if stops else None),
    )
