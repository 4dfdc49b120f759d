"""CFG129: a module that the job's settings or the user's own files import is not installed."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModule, MissingModules
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_IMPL = "actor_rollout_ref.actor.optim.optimizer_impl"
_REWARD = "custom_reward_function.path"
_OPTIMIZER = MissingModules((MissingModule("bitsandbytes", _IMPL, "workers"),))
_IMPORT = MissingModules((MissingModule("math_verify", _REWARD, "first batch", "/home/me/reward.py", 3),))


@check(
    "CFG129",
    requires=("CFG101", "CFG102", "CFG103", "CFG126"),
    examples=lambda: [
        Example("all are there", (*configured(), MissingModules())),
        Example("an optimizer's", (*configured(f"++{_IMPL}=bitsandbytes.optim"), _OPTIMIZER), "bitsandbytes, which actor_rollout_ref.actor.optim.optimizer_impl names, is not installed"),
        Example("in a reward file", (*configured(f"+{_REWARD}=/home/me/reward.py"), _IMPORT), "/home/me/reward.py imports math_verify, which is not installed"),
    ],
    since="0.2",
)  # fmt: skip
def module_missing(configuration: Configuration, modules: MissingModules) -> Iterator[Finding]:
    """A module that the job's settings or the user's own files import is not installed.

    ## Why it matters
    verl imports what `optimizer_impl`, `external_lib` and `agent_loop_manager_class` name, and the files of rewards, tools
    and data sets, in its workers: minutes after the start. `No module named ...` ends the job there.

    ## How to fix
    Install the package into the environment of the job, correct the name, or put the module's folder on `PYTHONPATH`.
    """
    for module in modules.modules:
        word = configuration.override_of(module.key)
        what = (
            f"{module.path} imports {module.name}, which is not installed"
            if module.path
            else f"{module.name}, which {module.key} names, is not installed"
        )
        yield Finding(
            what,
            Evidence(
                found=f"no module {module.name} in the job's folder, on its PYTHONPATH or in its environment",
                wanted=f"a module {module.name}",
            ),
            location=Location(module.path, module.line) if module.path else place(word) if word else None,
            remedy=f"install {module.name}, or correct the name",
            subject=Subject("setting", module.key, module.name),
            stops=(EVERY_JOB,),
            phase=module.phase,
        )
