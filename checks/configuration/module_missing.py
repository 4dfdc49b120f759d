"""CFG129: something that the job's settings or the user's own files import does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place, release
from verl_doctor.checks.shared.corrections import Healed, healed
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.made_first import unless_installed
from verl_doctor.checks.shared.variables import not_set, places
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.missing_modules import HUB, MissingModule, MissingModules
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_IMPL = "actor_rollout_ref.actor.optim.optimizer_impl"
_REWARD = "custom_reward_function.path"
_OPTIMIZER = MissingModules((MissingModule(name="bitsandbytes", key=_IMPL, phase="workers"),))
_DATASET = "data.custom_cls.path"
_LACKING = MissingModules(
    (
        MissingModule(
            name="verl.utils.dataset.rl_dataset.RLHFDatset",
            key=_DATASET,
            phase="workers",
            path="/home/me/mine.py",
            line=1,
            package="verl",
            near="RLHFDataset",
        ),
    )
)
_IMPORT = MissingModules(
    (MissingModule(name="math_verify", key=_REWARD, phase="first batch", path="/home/me/reward.py", line=3),)
)


def _examples() -> list[Example]:
    return [
        Example("all modules are installed", (*configured(), MissingModules())),
        Example(
            "an optimizer's",
            (*configured(f"++{_IMPL}=bitsandbytes.optim"), _OPTIMIZER),
            "bitsandbytes, which actor_rollout_ref.actor.optim.optimizer_impl names, is not installed",
        ),
        Example(
            "that a variable has verl import",
            (
                *configured(),
                MissingModules(
                    (MissingModule(name="my_patch", key="VERL_USE_EXTERNAL_MODULES", phase="import"),)
                ),
            ),
            "my_patch, which VERL_USE_EXTERNAL_MODULES names, is not installed",
        ),
        Example(
            "in a reward file",
            (*configured(f"+{_REWARD}=/home/me/reward.py"), _IMPORT),
            "/home/me/reward.py imports math_verify, which is not installed",
        ),
        Example(
            "installed first",
            (*configured(f"+{_REWARD}=/home/me/reward.py"), _IMPORT, Launch(FILES, installs=True)),
            "unless a command of the script installs it first",
        ),
        Example(
            "a class that verl does not have",
            (*configured(f"+{_DATASET}=/home/me/mine.py"), _LACKING),
            (
                "imports verl.utils.dataset.rl_dataset.RLHFDatset, which verl 0.6.1 does not have; did you "
                "mean RLHFDataset?"
            ),
        ),
    ]


@check("CFG129", requires=("CFG101", "CFG102", "CFG103", "CFG126"), examples=_examples, since="0.2")
def module_missing(
    configuration: Configuration,
    modules: MissingModules,
    launch: Launch | Unknown,
    variables: Variables | Unknown,
) -> Iterator[Finding]:
    """A module, class or function that the job's settings or the user's own files import does not exist.

    ## Why it matters
    verl imports what `optimizer_impl`, `external_lib`, `agent_loop_manager_class` and the variable
    VERL_USE_EXTERNAL_MODULES name, and the files of rewards, tools and data sets, in its workers, minutes
    after the start. There the job stops with `No module named ...` or `cannot import name ...`.

    ## How to fix
    Install the package into the environment of the job, correct the name, or put the module's folder on
    `PYTHONPATH`. A name from another release of verl may have moved or been removed in this one.
    """
    for module in modules.modules:
        word = configuration.override_of(module.key)
        uses = (
            f"{module.path} imports {module.name}, which"
            if module.path
            else f"{module.name}, which {module.key} names,"
        )
        lacks = f"{release(configuration)} does not have" if module.package else "is not installed"
        found = Finding(
            f"{uses} {lacks}" + (f"; did you mean {module.near}?" if module.near else ""),
            Evidence(
                found=f"no {module.name} in the installed {module.package}"
                if module.package
                else f"no module {module.name} in the job's folder, on its PYTHONPATH or in its environment",
                wanted=module.name if module.package else f"a module {module.name}",
            ),
            location=Location(module.path, module.line) if module.path else place(word) if word else None,
            remedy="correct the name"
            if module.package
            else f"put {module.folder} on PYTHONPATH"
            if module.folder
            else f"install {module.name}, or correct the name",
            subject=Subject("setting", module.key, module.name),
            stops=(EVERY_JOB,),
            phase=module.phase,
            **(
                _healed(variables, launch)
                if module.key == HUB
                else {"fix": "on-python-path"}
                if module.folder
                else {}
            ),
        )
        yield unless_installed(found, launch)


def _healed(variables: Variables | Unknown, launch: Launch | Unknown) -> Healed:
    """Models come from the Hugging Face Hub where a file sets the variable and its package is missing."""
    found = [] if isinstance(variables, Unknown) else places(HUB, variables, launch)
    return healed("CFG129", not_set(found[-1], "models come from the Hugging Face Hub") if found else None)
