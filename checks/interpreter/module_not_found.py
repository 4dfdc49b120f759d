"""PY113: the script starts a module that neither the installed verl nor the job's path has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.collectors.variables.program_module import ProgramModule
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Location, Subject, check

_HERE = ProgramModule(
    module="verl.trainer.main_ppo", path="/home/me/run.sh", line=3, verl="/env/verl", version="0.9.1"
)
_THERE = ("verl.trainer.main_ppo", "verl.trainer.sft_trainer")
_GONE = ProgramModule(
    module="verl.trainer.ppo_main",
    path="/home/me/run.sh",
    line=3,
    verl="/env/verl",
    version="0.9.1",
    missing=True,
    programs=_THERE,
)
_OLD = ProgramModule(
    module="verl.trainer.fsdp_sft_trainer",
    path="/home/me/run.sh",
    line=3,
    verl="/env/verl",
    missing=True,
    programs=_THERE,
)
_MORE = ProgramModule(
    module="verl.trainer.main_generation",
    path="/home/me/run.sh",
    line=3,
    verl="/env/verl",
    missing=True,
    programs=("verl.trainer.main_generation_server",),
)
_FAR = ProgramModule(
    module="verl.model_merger2", path="/home/me/run.sh", line=3, verl="/env/verl", missing=True
)
_MOVED = ProgramModule(
    module="recipe.fully_async_policy.fully_async_main",
    path="/home/me/run.sh",
    line=3,
    verl="/env/verl",
    version="0.9.1",
    missing=True,
    programs=("verl.experimental.fully_async_policy.fully_async_main",),
    lacking="recipe",
)


def _examples() -> list[Example]:
    return [
        Example("the module exists", (_HERE,)),
        Example(
            "a module of a package that is on no path",
            (_MOVED,),
            "did you mean verl.experimental.fully_async_policy.fully_async_main?",
        ),
        Example(
            "a name with its parts in another order",
            (_GONE,),
            "verl 0.9.1 has no module verl.trainer.ppo_main",
        ),
        Example(
            "the module of an earlier release",
            (_OLD,),
            "no module verl.trainer.fsdp_sft_trainer; did you mean verl.trainer.sft_trainer?",
        ),
        Example(
            "a module that does something more", (_MORE,), "did you mean verl.trainer.main_generation_server?"
        ),
        Example("no module has a similar name", (_FAR,), "no module verl.model_merger2"),
    ]


@check("PY113", phase="import", examples=_examples, since="0.2")
def module_not_found(program: ProgramModule) -> Iterator[Finding]:
    """The script starts a module that neither the installed verl nor the job's path has.

    ## Why it matters
    `python -m` ends at once: `No module named ...`. Trainers move between releases: scripts for an older one
    name modules that no longer exist, or that lie in a folder of verl's repository and in no wheel, such as
    `recipe`.

    ## How to fix
    Name a module that this verl has, install the release for which the script was written, or start the
    script in the folder that holds the module.
    """
    if not program.missing:
        return
    likeness = 0.5 if program.lacking else 0.6
    near = next(iter(difflib.get_close_matches(program.module, program.programs, 1, likeness)), "")
    verl = f"verl {program.version}" if program.version else "this verl"
    lacks = (
        f"the script starts {program.module}, and there is no {program.lacking} on the job's path"
        if program.lacking
        else f"{verl} has no module {program.module}"
    )
    yield Finding(
        lacks + (f"; did you mean {near}?" if near else ""),
        Evidence(found=f"no {program.module}", wanted=near, read_from=program.verl),
        location=Location(program.path, None if program.path == COMMAND_LINE else program.line),
        remedy=f"write {near} instead"
        if near
        else f"start the script in the folder that holds {program.lacking}, or add that folder to PYTHONPATH"
        if program.lacking
        else "name a module that this verl has",
        subject=Subject("symbol", program.module, near),
        fix="script-module" if _is_same(program.module, near) and program.path != COMMAND_LINE else None,
        stops=(EVERY_JOB,),
    )


def _is_same(module: str, near: str) -> bool:
    """Return whether the other name has no word that this one lacks, or its last two parts are the same.

    For example, `main_generation_server` is another program.
    """
    parts, near_parts = module.split("."), near.split(".")
    if near and len(parts) > 2 and parts[0] in ("recipe", "verl") and parts[-2:] == near_parts[-2:]:
        return True  # its folder has moved
    words = re.split(r"[._]", module)
    return near != "" and all(
        difflib.get_close_matches(word, words, 1, 0.7) for word in re.split(r"[._]", near)
    )
