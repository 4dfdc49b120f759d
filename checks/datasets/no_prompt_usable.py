"""DATA114: no training prompt is usable: the chat template refuses them, or all are too long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import tables
from verl_doctor.checks.shared.configuration import configured, own_prompts, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.collectors.model.rendered_prompts import FILTER, PROMPT, RenderedPrompts
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

_TEMPLATE = ChatTemplate(folder="/models/gemma", found_in="/models/gemma/tokenizer_config.json")
_REFUSED = RenderedPrompts(7473, refused="System role not supported")
_LONG = RenderedPrompts(7473, shortest=31)


def _irrelevant(configuration: Configuration) -> str | None:
    if not configuration.program.endswith("/trainer/main_ppo.py"):
        return "another program may build prompts in another way"
    if configuration.get("trainer.val_only") not in (False, None, MISSING):
        return "the job may use no training prompt"
    own = own_prompts(configuration)
    return f"{own} may build prompts without a template" if own else None


def _examples() -> list[Example]:
    return [
        Example(
            "prompts that are left in",
            (*configured(f"++{PROMPT}=16", f"++{FILTER}=False"), tables(), _TEMPLATE, _LONG),
        ),
        Example(
            "prompts that may be short enough",
            (*configured(f"++{PROMPT}=31", f"++{FILTER}=True"), tables(), _TEMPLATE, _LONG),
        ),
        Example(
            "an own data set", (*configured("++data.custom_cls.path=mine.py"), tables(), _TEMPLATE, _REFUSED)
        ),
        Example(
            "a job that only validates",
            (*configured("++trainer.val_only=True"), tables(), _TEMPLATE, _REFUSED),
        ),
        Example(
            "another trainer",
            (replace(configured()[0], program="/home/me/train.py"), tables(), _TEMPLATE, _REFUSED),
        ),
        Example(
            "prompts that are all too long",
            (*configured(f"++{PROMPT}=30", f"++{FILTER}=True"), tables(), _TEMPLATE, _LONG),
            "all 7473 training prompts have more than data.max_prompt_length=30 tokens: at least 31",
        ),
        Example(
            "a template that refuses them",
            (*configured(), tables(), _TEMPLATE, _REFUSED),
            (
                "the chat template in /models/gemma/tokenizer_config.json refuses the training prompts: "
                "System role not supported"
            ),
        ),
    ]


@check(
    "DATA114",
    phase="workers",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103", "DATA104", "DATA105", "LOAD117"),
    examples=_examples,
    since="0.2",
)
def no_prompt_usable(
    configuration: Configuration, tables: DataTables, template: ChatTemplate, prompts: RenderedPrompts
) -> Iterator[Finding]:
    """The chat template refuses the prompts of the training data, or all are too long.

    ## Why it matters

    Some templates refuse a system message, or roles that do not alternate: `System role not supported`. verl
    then generates nothing for such a prompt. With `data.filter_overlong_prompts=True`, it leaves out prompts
    with more tokens than `data.max_prompt_length`, and those that the template refuses. Where none is left,
    the job ends with `num_samples should be a positive integer value, but got num_samples=0`. The tokens are
    counted without the tokenizer: there may be more, but not fewer.

    ## How to fix

    Put the system message into the first message of the user when you generate the data, use the tokenizer of
    another model, or raise `data.max_prompt_length`.
    """
    filters = configuration.get(FILTER) is True
    if prompts.refused:
        file = tables.of("train")[0].file.path if tables.of("train") else ""
        yield Finding(
            f"the chat template in {template.found_in} refuses the training prompts: {prompts.refused}",
            Evidence(prompts.refused, "messages that the template accepts", file),
            location=None if template.text else Location(template.folder),
            remedy="generate the data with roles that the template accepts, or change the template",
            subject=Subject("model", template.folder, "refuses"),
            severity=None if prompts.whole else "warning",
            stops=(EVERY_JOB,) if prompts.whole else (),
            phase="workers" if filters else "first batch",
        )
        return
    most = configuration.number(PROMPT)
    if filters and most is not None and prompts.shortest > most:
        word = configuration.override_of(PROMPT)
        yield Finding(
            (
                f"all {prompts.rows} training prompts have more than {PROMPT}={int(most)} tokens: at least "
                f"{prompts.shortest}"
            ),
            Evidence(
                f"{PROMPT}={int(most)}",
                f"a length that some prompts have; the shortest has {prompts.shortest} tokens or more",
            ),
            location=place(word) if word else None,
            remedy=f"raise {PROMPT}",
            subject=Subject("setting", PROMPT),
            stops=(EVERY_JOB,),
            **healed("DATA114", _correction(configuration, prompts)),
        )


def _correction(configuration: Configuration, prompts: RenderedPrompts) -> Correction | None:
    """verl's default, if the shortest prompt has at most half of it.

    The prompt's tokens are counted without the tokenizer.
    """
    default = configuration.default(PROMPT)
    if not isinstance(default, int) or 2 * prompts.shortest > default:
        return None
    why = f"the shortest prompt has at least {prompts.shortest} tokens"
    return settings(
        configuration, {PROMPT: LEAVE_OUT}, why, f"prompts of up to {default} tokens are kept, verl's default"
    )
