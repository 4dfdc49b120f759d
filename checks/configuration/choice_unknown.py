"""CFG119: a setting names what this verl does not have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured, place, release
from verl_doctor.checks.shared.corrections import healed, reworded, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.registries import (
    AGENT_LOOP,
    CONTENTS,
    ESTIMATOR,
    LOGGER,
    LOSS,
    METRIC,
    MODE,
    OLD_REWARD_MANAGER,
    OPTIMIZERS,
    QUANTIZATION,
    REJECTION,
    RESUME,
    REWARD_MANAGER,
    ROLLOUT,
    STRATEGY,
    TOOL_FORMAT,
    TRAINER,
    TRANSPORT,
    WEIGHTS,
    Registry,
    VerlRegistries,
)
from verl_doctor.toolkit.collectors.model.data_tables import DataTables, Table
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Phase,
    Subject,
    check,
)
from verl_doctor.toolkit.text import with_part

_WHAT = {
    ROLLOUT: "rollout",
    MODE: "rollout mode",
    STRATEGY: "strategy",
    ESTIMATOR: "advantage estimator",
    LOSS: "policy loss",
    AGENT_LOOP: "agent loop",
    LOGGER: "tracker",
    REWARD_MANAGER: "reward manager",
    OLD_REWARD_MANAGER: "reward manager",
    TOOL_FORMAT: "format of tool calls",
    TRAINER: "trainer",
    QUANTIZATION: "quantization",
    TRANSPORT: "checkpoint engine",
    RESUME: "resume mode",
    WEIGHTS: "level of importance sampling",
    REJECTION: "rejection option",
    METRIC: "metric of its own rewards called",
    **dict.fromkeys(OPTIMIZERS, "optimizer"),
    **dict.fromkeys(CONTENTS, "part of a checkpoint called"),
}
# When verl looks the name up, as observed in its runs.
_PHASES: Mapping[str, Phase] = {
    ROLLOUT: "workers",
    MODE: "workers",
    STRATEGY: "workers",
    ESTIMATOR: "first update",
    LOSS: "first update",
    AGENT_LOOP: "first batch",
    LOGGER: "first batch",
    REWARD_MANAGER: "engine",
    OLD_REWARD_MANAGER: "engine",
    TOOL_FORMAT: "first batch",
    TRAINER: "workers",
    QUANTIZATION: "engine",
    TRANSPORT: "workers",
    RESUME: "engine",
    WEIGHTS: "first batch",
    REJECTION: "first batch",
    METRIC: "first batch",
    **dict.fromkeys(OPTIMIZERS, "workers"),
}
_SAVES = "trainer.save_freq"
_PLAIN = 0.8  # the similarity from which two names are certainly the same
_AGENT_LOOPS_FILE = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
_HAVE = VerlRegistries(
    {
        ROLLOUT: Registry(names=("vllm", "sglang"), read_from="/env/verl/workers/rollout/base.py:81"),
        MODE: Registry(names=("async",), read_from="/env/verl/workers/rollout/base.py:81"),
        ESTIMATOR: Registry(names=("gae", "grpo"), read_from="/env/verl/trainer/ppo/core_algos.py:212"),
        TRAINER: Registry(
            names=("colocate_async", "separate_async", "sync"),
            read_from="/env/verl/trainer/ppo/v1/trainer_sync.py:24",
        ),
        LOGGER: Registry(names=("console", "wandb", "swanlab"), read_from="/env/verl/utils/tracking.py:46"),
        TRANSPORT: Registry(names=("naive", "nccl"), read_from="/env/verl/checkpoint_engine/base.py:246"),
        RESUME: Registry(
            names=("disable", "auto", "resume_path"), read_from="/env/verl/trainer/ppo/v1/trainer_base.py:854"
        ),
        REJECTION: Registry(
            names=("seq_max_k2", "token_k1"), read_from="/env/verl/trainer/ppo/rollout_corr_helper.py:77"
        ),
        METRIC: Registry(names=("acc", "reward"), read_from="/env/verl/trainer/ppo/v1/replay_buffer.py"),
        CONTENTS[0]: Registry(
            names=("model", "optimizer", "extra"),
            read_from="/env/verl/utils/checkpoint/checkpoint_manager.py:75",
        ),
    }
)


def _own(estimator: str) -> Configuration:
    """A configuration file of the user's own that names an estimator."""
    (configuration,) = configured(tree={"algorithm": {"adv_estimator": estimator}})
    return replace(configuration, folder="/home/me/config", name="mine", origins={ESTIMATOR: "mine.yaml:7"})


def _irrelevant(registries: VerlRegistries) -> str | None:
    extended = registries.extended_by
    if registries.registries.keys() & registries.closed:
        return None
    return f"{extended} may register names that verl does not have" if extended else None


def _examples() -> list[Example]:
    return [
        Example("names that this verl has", (*configured(f"{ROLLOUT}=sglang", f"{ESTIMATOR}=gae"), _HAVE)),
        Example("an unknown value", (*configured(f"{ESTIMATOR}=${{oc.env:ADV}}"), _HAVE)),
        Example("trackers that this verl has", (*configured(f"{LOGGER}=[console,swanlab]"), _HAVE)),
        Example(
            "a plugin has estimators, not trackers",
            (
                *configured(f"{ESTIMATOR}=mine", f"{LOGGER}=[neptune]"),
                replace(_HAVE, extended_by="mine", closed=(LOGGER,)),
            ),
            "has no tracker neptune",
        ),
        Example("the user's own trainer may have more", (*configured(f"{ESTIMATOR}=mine"), VerlRegistries())),
        Example(
            "an estimator with a typo",
            (*configured(f"{ESTIMATOR}=gpro"), _HAVE),
            "verl 0.6.1 has no advantage estimator gpro; did you mean grpo?",
        ),
        Example(
            "a truth value for a name",
            (*configured(f"{ESTIMATOR}=True"), _HAVE),
            "has no advantage estimator True",
        ),
        Example(
            "an estimator in the user's own file",
            (_own("GRPO"), _HAVE),
            "has no advantage estimator GRPO; did you mean grpo?",
        ),
        Example("an estimator that exists, in the user's own file", (_own("gae"), _HAVE)),
        Example(
            "a metric that verl's rewards do not return",
            (*configured(f"+{METRIC}=accuracy"), _HAVE),
            "has no metric of its own rewards called accuracy",
        ),
        Example(
            "an estimator in capitals",
            (*configured(f"{ESTIMATOR}=GRPO"), _HAVE),
            "has no advantage estimator GRPO; did you mean grpo?",
        ),
        Example("a rollout of an older verl", (*configured(f"{ROLLOUT}=hf"), _HAVE), "has no rollout hf"),
        Example("a mode of an older verl", (*configured(f"+{MODE}=sync"), _HAVE), "has no rollout mode sync"),
        Example(
            "a transport of weights that verl does not have",
            (*configured(f"+{TRANSPORT}=rdma"), _HAVE),
            "has no checkpoint engine rdma",
        ),
        Example("a way to resume that exists", (*configured(f"+{RESUME}=auto"), _HAVE)),
        Example(
            "a way to resume that verl does not have",
            (*configured(f"+{RESUME}=latest"), _HAVE),
            "has no resume mode latest",
        ),
        Example("two ways to reject", (*configured(f"+{REJECTION}='token_k1, seq_max_k2'"), _HAVE)),
        Example("no rejection", (*configured(f"+{REJECTION}=null"), _HAVE)),
        Example(
            "one of two ways to reject has a typo",
            (*configured(f"+{REJECTION}='token_k1,seq_k2'"), _HAVE),
            "has no rejection option seq_k2",
        ),
        Example(
            "a trainer that verl does not have",
            (*configured(f"+{TRAINER}=async"), _HAVE),
            "has no trainer async; it has only colocate_async, separate_async and sync",
        ),
        Example(
            "checkpoints of what verl can save",
            (*configured(f"+{CONTENTS[0]}=[model,extra]", f"+{_SAVES}=5"), _HAVE),
        ),
        Example("nothing is saved", (*configured(f"+{CONTENTS[0]}=[modell]", f"+{_SAVES}=-1"), _HAVE)),
        Example(
            "checkpoints without the model",
            (*configured(f"+{CONTENTS[0]}=[modell,extra]", f"+{_SAVES}=5"), _HAVE),
            "has no part of a checkpoint called modell; did you mean model?",
        ),
        Example(
            "a tracker that verl does not have",
            (*configured(f"{LOGGER}=[console,neptune]"), _HAVE),
            "has no tracker neptune",
        ),
    ]


@check(
    "CFG119", applies=_irrelevant, requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2"
)
def choice_unknown(
    configuration: Configuration, registries: VerlRegistries, tables: DataTables | Unknown
) -> Iterator[Finding]:
    """A setting names something that this verl does not have.

    ## Why it matters
    Hydra accepts any text for `rollout.name`, `rollout.mode`, `actor.strategy`, `adv_estimator`, `loss_mode`,
    a reward manager, an agent loop, a tracker, a trainer, a way to resume, a quantization or an optimizer.
    verl looks the name up only when it needs it, after Ray is up and often after the model is loaded, and
    stops there. Names come and go between releases: `rollout.mode=sync` and `rollout.name=hf` were removed.

    A wrong name in `checkpoint.save_contents` or `load_contents` stops nothing, and is a warning: verl
    ignores it, so that part is missing from every checkpoint.

    ## How to fix
    Use a name that the finding lists. If your own code registers the name, the job must load that code
    (`actor_rollout_ref.model.external_lib`, `VERL_USE_EXTERNAL_MODULES`).
    """
    for key, registry in registries.registries.items():
        if registries.extended_by and key not in registries.closed:
            continue
        word = configuration.override_of(key)
        own = configuration.own_line(key) if word is None else None
        if word is None and own is None:
            continue
        if key == AGENT_LOOP and _agent_loops_elsewhere(configuration, tables):
            continue
        if key in CONTENTS and not (configuration.number(_SAVES) or 0) > 0:
            continue
        values = configuration.get(key)
        default = None if own else configuration.default(key)
        known = {*registry.names, *(default if isinstance(default, list) else [default])}
        if key == REJECTION and isinstance(values, str):
            values = [part.strip() for part in values.split(",")]
        for given in values if isinstance(values, list) else [values]:
            value = str(given) if isinstance(given, (int, float)) else given
            if not isinstance(value, str) or not value or value in known:
                continue
            names = ", ".join(registry.names)
            near = "" if key == METRIC else _nearest(value, registry.names)
            several = [] if near or key == METRIC else with_part(value, registry.names)
            yield Finding(
                f"{release(configuration)} has no {_WHAT[key]} {value}"
                + (f"; did you mean {near}?" if near else "")
                + (f"; it has only {_in_words(registry.names, 'and')}" if several else ""),
                Evidence(
                    found=word.text if word else f"{key}: {value}",
                    wanted=f"one of {names}",
                    read_from=registry.read_from,
                ),
                location=place(word) if word else own and Location(*own),
                remedy=f"write {near or _in_words(several, 'or')} instead of {value}"
                if near or several
                else f"set {key} to one of {names}",
                subject=Subject("setting", key),
                severity="warning" if key in CONTENTS else None,
                stops=() if key in CONTENTS else (EVERY_JOB,),
                phase="workers" if key == RESUME and not configuration.has(ROLLOUT) else _PHASES.get(key),
                **healed(
                    "CFG119",
                    None
                    if several
                    else _correction(word, value, near, default, only=registry.names == (near,))
                    if word
                    else _override(configuration, key, value, near),
                ),
            )


def _in_words(names: Sequence[str], conjunction: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def _nearest(value: str, names: Sequence[str]) -> str:
    """The name that differs only in case and punctuation, otherwise the closest name.

    The result is "" if none is close, or if several have the value as a part.
    """
    if (whole := with_part(value, names)) and value not in names:
        return whole[0] if len(whole) == 1 else ""
    plain = {_plain(name): name for name in reversed(names)}
    near = difflib.get_close_matches(_plain(value), plain, 1)
    return plain[near[0]] if near else ""


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def _correction(
    word: OverrideWord, value: str, near: str, default: object, *, only: bool
) -> Correction | None:
    """The intended name, otherwise verl's default.

    A name that was removed gives way to the `only` one that is left.
    """
    if near and only:
        return reworded(word, word.text.replace(value, near), f"{near} is the only one that this verl has")
    if near and _is_misspelt(value, near):
        return reworded(word, word.text.replace(value, near), f"{near} is the closest name to {value}")
    new = near or (default if isinstance(default, str) and default in word.text else "")
    if new:
        return reworded(
            word, word.text.replace(value, new), effect=f"the job runs with {new} instead of {value}"
        )
    shown = f", {default}," if isinstance(default, (str, int, float)) else ""
    return reworded(word, None, effect=f"{word.key} is verl's default{shown} instead of {value}")


def _override(configuration: Configuration, key: str, value: str, near: str) -> Correction | None:
    """The intended name as a word of the command; None for one entry of a list.

    The word takes precedence over the user's file.
    """
    if not near or configuration.get(key) != value or not _is_misspelt(value, near):
        return None
    return settings(configuration, {key: near}, f"{near} is the closest name to {value}", "")


def _is_misspelt(value: str, near: str) -> bool:
    """Whether the names differ in a few letters.

    What stands in front of a name may be its opposite, as in async.
    """
    first, second = _plain(value), _plain(near)
    if first != second and (first.endswith(second) or second.endswith(first)):
        return False
    return difflib.SequenceMatcher(None, _plain(value), _plain(near)).ratio() >= _PLAIN


def _agent_loops_elsewhere(configuration: Configuration, tables: DataTables | Unknown) -> bool:
    """Whether a file may define further agent loops, or rows may name their own.

    The default is not used then.
    """
    if configuration.get(_AGENT_LOOPS_FILE):
        return True
    trained = () if isinstance(tables, Unknown) else tables.of("train", "val")
    found: list[Table] = list(trained)
    return not found or any(column.name == "agent_name" for table in found for column in table.columns)
