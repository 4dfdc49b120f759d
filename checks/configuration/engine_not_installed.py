"""CFG120: the rollout, trainer, kernels, profiler or tracker that the job selects is not installed."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, reworded, settings
from verl_doctor.checks.shared.made_first import unless_installed
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.engines import ChosenEngines, Engine
from verl_doctor.toolkit.collectors.configuration.registries import LOGGER
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check

_ROLLOUT = "actor_rollout_ref.rollout.name"
_STRATEGY = "actor_rollout_ref.actor.strategy"
_LATE = ("actor_rollout_ref.rollout.trace.backend", LOGGER)
_ALONE = "the metrics go only to the console: no tracker records them"


def _engine(*, installed: bool) -> ChosenEngines:
    place = "/env/verl/workers/rollout/sglang_rollout/sglang_rollout.py:24"
    return ChosenEngines(
        (
            Engine(
                key=_ROLLOUT,
                name="sglang",
                title="SGLang",
                module="sglang",
                installed=installed,
                read_from=place,
            ),
        )
    )


def _examples() -> list[Example]:
    return [
        Example("the engine is installed", (*configured(f"{_ROLLOUT}=sglang"), _engine(installed=True))),
        Example(
            "the engine is not installed",
            (*configured(f"{_ROLLOUT}=sglang"), _engine(installed=False)),
            "rollout.name is sglang, but SGLang is not installed",
        ),
        Example(
            "a trainer",
            (
                *configured(f"{_STRATEGY}=megatron"),
                ChosenEngines(
                    (
                        Engine(
                            key=_STRATEGY,
                            name="megatron",
                            title="Megatron Core",
                            module="megatron.core",
                            installed=False,
                        ),
                    )
                ),
            ),
            "actor.strategy is megatron, but Megatron Core is not installed",
        ),
        Example(
            "a tracker",
            (
                *configured(f"{LOGGER}=[console,mlflow]"),
                ChosenEngines(
                    (Engine(key=LOGGER, name="mlflow", title="mlflow", module="mlflow", installed=False),)
                ),
            ),
            "trainer.logger names mlflow, but mlflow is not installed",
        ),
    ]


@check("CFG120", requires=("CFG101", "CFG102", "CFG103", "CFG119"), examples=_examples, since="0.2")
def engine_not_installed(
    configuration: Configuration, engines: ChosenEngines, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The rollout, trainer, kernels, profiler or tracker that the job selects is not installed.

    ## Why it matters
    `rollout.name`, `actor.strategy`, `model.use_liger`, `global_profiler.tool`, `rollout.trace.backend` and
    `trainer.logger` choose packages that verl imports only when its workers start, or before the first step:
    `No module named 'sglang'`, after Ray is up and the data are loaded. verl requires none of them, so no
    installer complains.

    ## How to fix
    Install the package in this environment, in a version that this verl supports, or choose an engine that is
    installed. Where the choice cannot be edited, `verl-doctor fix` resolves verl with the extra that brings
    the package.
    """
    for engine in engines.engines:
        if engine.installed:
            continue
        word = configuration.override_of(engine.key)
        short = engine.key.removeprefix("actor_rollout_ref.")
        found = Finding(
            (
                f"{short} {'names' if engine.key == LOGGER else 'is'} {engine.name}, but {engine.title} is "
                "not installed"
            ),
            Evidence(
                found=word.text if word else f"{engine.key}={engine.name} in the configuration",
                wanted=f"a module {engine.module}",
                read_from=engine.read_from,
            ),
            location=place(word) if word else None,
            remedy=f"install {engine.title} in this environment, or "
            + (
                f"leave {engine.name} out of {LOGGER}"
                if engine.key == LOGGER
                else f"leave out {engine.key}={engine.name}"
                if engine.name == "True"
                else f"set {engine.key} to an engine that is installed"
            ),
            subject=Subject("setting", engine.key),
            stops=(EVERY_JOB,),
            phase="first batch" if engine.key in _LATE else "workers",
            **(healed("CFG120", _correction(configuration, engine)) or {"fix": "consistent-install"}),
        )
        yield unless_installed(found, launch)


def _correction(configuration: Configuration, engine: Engine) -> Correction | None:
    """Verl's default if that is another engine; vLLM for the rollout, and the console for a tracker."""
    if engine.key == LOGGER:
        return settings(configuration, {LOGGER: ["console"]}, _ALONE, "")
    if engine.key == _ROLLOUT:
        return None if engine.name == "vllm" else settings(configuration, {_ROLLOUT: "vllm"})
    chosen = next(
        (word for word in configuration.overrides if word.fate == "chosen" and word.value == engine.name),
        None,
    )
    if chosen is not None:
        both = [word for word in (chosen, configuration.override_of(engine.key)) if word is not None]
        gone = [reworded(word, None) for word in both]
        rewrites = tuple(rewrite for correction in gone if correction for rewrite in correction.rewrites)
        effect = f"the job runs with verl's default, without {' and '.join(word.text for word in both)}"
        return Correction("", rewrites, effect=effect) if all(gone) else None
    return (
        None
        if configuration.default(engine.key) == configuration.get(engine.key)
        else settings(configuration, {engine.key: LEAVE_OUT})
    )
