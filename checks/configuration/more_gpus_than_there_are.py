"""CFG111: the job requests more GPUs or nodes than it can get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.configuration._job_gpus import (
    ALLOCATION,
    NODES_TO_GENERATE,
    RAY_ADDRESS,
    RAY_INIT,
    TO_GENERATE,
    VISIBLE,
    gpus_to_generate,
    has_gpus,
    joins_ray,
    starts_own_ray,
    usable_gpus,
    visible_gpus,
)
from verl_doctor.checks.configuration._machine_settings import recommended
from verl_doctor.checks.shared.configuration import GPUS, NODES, SCRIPT, configured, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.ray.addresses import LocalRay, RayAddresses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
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
from verl_doctor.toolkit.text import counted

_EFFECT = "the job trains on fewer GPUs than the script requests"
_LAUNCH = Launch(((SCRIPT, "shell script"),))
_BY_SRUN = replace(
    _LAUNCH,
    command=Command(module="verl.trainer.main_ppo", words=(), path=SCRIPT, line=3, names=("srun", "python3")),
)
_H200 = Gpu(name="NVIDIA H200", memory=143771)


def _machine(gpus: int, cpus: float = 16) -> Resources:
    return Resources(gpus=(_H200,) * gpus, cpus=cpus, memory=128 << 30)


def _apart(*words: str) -> tuple[Configuration]:
    """A trainer that generates on GPUs of its own: eight to train and eight to generate by default."""
    return configured(
        *words,
        tree={
            "rollout": {"nnodes": 1, "n_gpus_per_node": 8},
            "trainer": {"nnodes": 1, "n_gpus_per_node": 8, "device": "cuda"},
        },
    )


def _examples() -> list[Example]:
    return [
        Example("as many as there are", (*configured(), _machine(8))),
        Example(
            "no driver here: a login node",
            (*configured(), Resources(gpus=None, cpus=4, memory=None, why="there is no NVIDIA GPU here")),
        ),
        Example("an unknown value", (*configured(f"{GPUS}=${{oc.env:N}}"), _machine(1))),
        Example(
            "all requested GPUs are visible",
            (*configured(), _machine(8), JobVariables({VISIBLE: "0,1,2,3,4,5,6,7"}), _LAUNCH),
        ),
        Example(
            "a Ray that runs already",
            (
                *configured(),
                _machine(8),
                JobVariables({VISIBLE: "0", RAY_ADDRESS: "10.0.0.1:6379"}),
                _LAUNCH,
            ),
        ),
        Example(
            "2 are visible",
            (
                *configured(),
                _machine(8),
                JobVariables(values={VISIBLE: "0,1"}, places={VISIBLE: (SCRIPT, 3)}),
                _LAUNCH,
            ),
            "CUDA_VISIBLE_DEVICES shows only 2 GPUs",
        ),
        Example(
            "Ray is given fewer",
            (*configured(f"+{RAY_INIT}.num_gpus=4", f"{GPUS}=8"), _LAUNCH),
            "starts its own Ray with 4",
        ),
        Example(
            "two nodes, and a Ray with one",
            (*configured(f"+{RAY_INIT}.num_gpus=8", f"{NODES}=2"), _LAUNCH),
            "8 * 2 = 16 GPUs",
        ),
        Example("Ray is given enough", (*configured(f"+{RAY_INIT}.num_gpus=8"), _LAUNCH)),
        Example(
            "4 nodes of 2",
            (*configured(f"{NODES}=4"), JobVariables(), replace(_LAUNCH, nodes=2)),
            "requests 4 nodes, but the script requests 2 from Slurm",
        ),
        Example(
            "8 GPUs of 4",
            (*configured(f"{GPUS}=8"), JobVariables(), replace(_LAUNCH, nodes=1, gpus_per_node=4)),
            "requests 8 GPUs on each node, but the script requests 4 from Slurm",
        ),
        Example(
            "as much as Slurm gives",
            (
                *configured(f"{NODES}=2", f"{GPUS}=8"),
                JobVariables(),
                replace(_LAUNCH, nodes=2, gpus_per_node=8),
            ),
        ),
        Example(
            "in an allocation of another size",
            (*configured(f"{NODES}=4"), JobVariables({ALLOCATION: "7"}), replace(_LAUNCH, nodes=2)),
        ),
        Example(
            "a cluster that Slurm does not manage",
            (
                *configured(f"{NODES}=4"),
                JobVariables({RAY_ADDRESS: "10.0.0.1:6379"}),
                replace(_LAUNCH, nodes=2),
            ),
        ),
        Example(
            "half to train and half to generate",
            (*_apart(f"{GPUS}=4", f"{TO_GENERATE}=4"), _machine(8), JobVariables(), _LAUNCH),
        ),
        Example(
            "nothing to generate on its own",
            (*_apart(f"{NODES_TO_GENERATE}=0"), _machine(8), JobVariables(), _LAUNCH),
        ),
        Example(
            "a setting that the program does not read",
            (
                *configured(f"+{TO_GENERATE}=8", f"+{NODES_TO_GENERATE}=1"),
                _machine(8),
                JobVariables(),
                _LAUNCH,
            ),
        ),
        Example(
            "none left to generate",
            (*_apart(), _machine(8), JobVariables(), _LAUNCH),
            "8 GPUs to train and 8 GPUs to generate, but this machine has 8 GPUs",
        ),
        Example(
            "none visible is left to generate",
            (
                *_apart(f"{GPUS}=2", f"{TO_GENERATE}=2"),
                _machine(8),
                JobVariables(values={VISIBLE: "0,1,2"}, places={VISIBLE: (SCRIPT, 3)}),
                _LAUNCH,
            ),
            "but CUDA_VISIBLE_DEVICES shows 3 GPUs",
        ),
        Example(
            "Ray is given none to generate",
            (*_apart(f"+{RAY_INIT}.num_gpus=8"), _LAUNCH),
            "but it starts its own Ray with 8 GPUs",
        ),
        Example(
            "Ray is given a GPU that the script hides",
            (
                *configured(f"{GPUS}=1", f"{NODES}=1", f"+{RAY_INIT}.num_gpus=1"),
                JobVariables(values={VISIBLE: ""}, places={VISIBLE: (SCRIPT, 3)}),
                _LAUNCH,
            ),
            "starts its own Ray with 1 GPU, but CUDA_VISIBLE_DEVICES shows 0 GPUs",
        ),
        Example(
            "Ray is given as many GPUs as are visible",
            (
                *configured(f"{GPUS}=2", f"{NODES}=1", f"+{RAY_INIT}.num_gpus=2"),
                JobVariables(values={VISIBLE: "4,5"}, places={VISIBLE: (SCRIPT, 3)}),
                _LAUNCH,
            ),
        ),
        Example(
            "8 of 1, read without a script",
            (*configured(), _machine(1)),
            "requests 8 GPUs on each node, but this machine has 1 GPU",
        ),
        Example(
            "8 of 1, beside another driver's Ray",
            (
                *configured(f"{GPUS}=8", f"{NODES}=1"),
                _machine(1),
                JobVariables(),
                _LAUNCH,
                RayAddresses(running=(LocalRay("10.0.0.5:6379"),)),
            ),
            "this machine has 1 GPU",
        ),
        Example(
            "8 of 1 on a login node, by srun",
            (*configured(f"{GPUS}=8", f"{NODES}=1"), _machine(1), JobVariables(), _BY_SRUN),
            "this machine has 1 GPU",
        ),
        Example(
            "8 of 1, in a Ray of its own",
            (*configured(f"{GPUS}=8", f"{NODES}=1"), _machine(1), JobVariables(), _LAUNCH),
            "requests 8 GPUs on each node, but this machine has 1 GPU",
        ),
    ]


@check("CFG111", severity="warning", requires={"CUDA152", "CUDA155", "CFG104"}, examples=_examples)
def more_gpus_than_there_are(
    configuration: Configuration,
    resources: Resources | Unknown,
    variables: JobVariables | Unknown,
    launch: Launch | Unknown,
    rays: RayAddresses | Unknown,
) -> Iterator[Finding]:
    """The job requests more GPUs or nodes than it can get.

    ## Why it matters
    If the job is to run here, verl stops when it places its workers (`Total available GPUs ... is less than
    total desired GPUs`), or waits forever for nodes that never come. A Ray that the job starts itself counts
    the GPUs of this machine, or those in `CUDA_VISIBLE_DEVICES`: with fewer than the job requests, it always
    fails. Trainers that generate beside the training, such as one-step-off and fully async, need those of
    `rollout.n_gpus_per_node` as well. A batch script that requests fewer nodes or GPUs from Slurm than the
    job needs fails too, unless options of `sbatch` say otherwise. Where no script is named, or the job joins
    a Ray that runs, the finding is a warning.

    ## How to fix
    Start from the settings that the finding lists. They are computed from this machine, not measured: one
    tensor-parallel rank per GPU, FSDP offload of parameters and optimizer, batches in proportion, micro
    batches sized to the GPU's memory, and fewer samples and sequences at a time. Raise them while the memory
    lasts.
    """
    wanted = configuration.number(GPUS)
    nodes = configuration.number(NODES)
    has = configuration.number(f"{RAY_INIT}.num_gpus")
    apart = gpus_to_generate(configuration)
    own = isinstance(launch, Launch) and not launch.submitted and not launch.ray_starts
    if own and configuration.complete and wanted and nodes and has is not None:
        if (
            isinstance(variables, JobVariables)
            and isinstance(launch, Launch)
            and (found := _more_than_ray_sees(configuration, variables, launch, has))
        ):
            yield found
            return
        if has < wanted * nodes:
            yield _own_cluster_finding(configuration, wanted, nodes, has)
            return
        if has < wanted * nodes + apart:
            ray = f"it starts its own Ray with {counted(int(has), 'GPU')}"
            yield _none_left(configuration, wanted * nodes, apart, has, ray)
            return
    if (
        isinstance(launch, Launch)
        and isinstance(variables, JobVariables)
        and (found := _more_than_slurm_gives(configuration, variables, launch))
    ):
        yield found
        return
    starts_ray = (
        isinstance(variables, JobVariables)
        and isinstance(launch, Launch)
        and not joins_ray(rays)
        and starts_own_ray(configuration, variables, launch)
    )
    if (
        wanted
        and starts_ray
        and isinstance(variables, JobVariables)
        and isinstance(launch, Launch)
        and (VISIBLE in variables.places or has_gpus(resources))
        and (visible := visible_gpus(variables, launch)) is not None
        and visible < wanted
    ):
        yield _hidden(configuration, variables, visible, wanted)
        return
    if wanted and starts_ray and apart and (usable := usable_gpus(resources, variables, launch)):
        count, where = usable
        if wanted + apart > count:
            yield _none_left(configuration, wanted, apart, count, where)
            return
    if isinstance(resources, Unknown) or not wanted:
        return
    if resources.gpus is not None and len(resources.gpus) < wanted:
        yield _fewer_here(configuration, resources, resources.gpus, wanted, starts_ray=starts_ray)


def _fewer_here(
    configuration: Configuration,
    resources: Resources,
    gpus: tuple[Gpu, ...],
    wanted: float,
    *,
    starts_ray: bool,
) -> Finding:
    """The finding for a machine with fewer GPUs than the job requests on each node."""
    count = len(gpus)
    here = counted(count, "GPU")
    word = configuration.override_of(GPUS)
    advice = recommended(configuration, resources)
    certain = count > 0 and starts_ray
    correction = settings(configuration, {GPUS: count}, effect=_EFFECT) if certain else None
    kinds = {f"{gpu.name} ({gpu.memory / 1024:.0f} GiB)" for gpu in gpus}
    return Finding(
        f"the job requests {counted(int(wanted), 'GPU')} on each node, but this machine has {here}",
        Evidence(
            found=f"{here}: {', '.join(sorted(kinds))}" if kinds else here,
            wanted=f"{GPUS}={wanted:g}" + ("" if word else ", verl's default"),
            read_from="NVML",
        ),
        location=place(word) if word else None,
        remedy=f"to run it here, start from: {' '.join(advice)}" if advice else "",
        severity="error" if certain else "warning",
        **healed("CFG111", correction),
        subject=Subject("setting", GPUS),
        stops=(EVERY_JOB,) if certain else (),
        phase="workers",
    )


def _own_cluster_finding(configuration: Configuration, wanted: float, nodes: float, has: float) -> Finding:
    """The finding for a job that passes `ray.init()` the number of GPUs.

    Such a job cannot join a cluster, so there are no other GPUs.
    """
    word = configuration.override_of(NODES if has >= wanted else f"{RAY_INIT}.num_gpus")
    return Finding(
        (
            f"the job requests {wanted:g} * {nodes:g} = {counted(int(wanted * nodes), 'GPU')}, but starts "
            f"its own Ray with {has:g}"
        ),
        Evidence(
            found=f"{RAY_INIT}.num_gpus={has:g}, {GPUS}={wanted:g}, {NODES}={nodes:g}",
            wanted=counted(int(wanted * nodes), "GPU"),
        ),
        location=place(word) if word else None,
        remedy=(
            f"request {counted(int(has), 'GPU')}, or remove {RAY_INIT}.num_gpus and join a cluster that "
            "has them"
        ),
        severity="error",
        **healed("CFG111", _fewer(configuration, int(wanted), int(nodes), int(has))),
        subject=Subject("setting", word.key if word else GPUS),
        stops=(EVERY_JOB,),
        phase="workers",
    )


def _more_than_ray_sees(
    configuration: Configuration, variables: JobVariables, launch: Launch, has: float
) -> Finding | None:
    """The finding for a script that passes `ray.init()` more GPUs than it leaves visible.

    Ray refuses that when it starts.
    """
    visible = visible_gpus(variables, launch)
    if VISIBLE not in variables.places or visible is None or has <= visible:
        return None
    key, here = f"{RAY_INIT}.num_gpus", variables.places[VISIBLE]
    correction = settings(configuration, {key: visible}) if visible else None
    return Finding(
        (
            f"the job starts its own Ray with {counted(int(has), 'GPU')}, but {VISIBLE} shows "
            f"{counted(visible, 'GPU')}"
        ),
        Evidence(
            found=f"{VISIBLE}={variables.values[VISIBLE]}",
            wanted=f"{key}={has:g}",
            read_from=f"{here[0]}:{here[1]}",
        ),
        location=Location(*here),
        remedy=f"list {counted(int(has), 'GPU')} in {VISIBLE}, or remove {key}: Ray counts the visible ones",
        severity="error",
        **healed("CFG111", correction),
        subject=Subject("setting", key),
        stops=(EVERY_JOB,),
        phase="ray",
    )


def _none_left(
    configuration: Configuration, training: float, generating: float, count: float, where: str
) -> Finding:
    """The finding for a trainer that generates on GPUs of its own, where training leaves too few of them."""
    word = configuration.override_of(GPUS) or configuration.override_of(TO_GENERATE)
    left = int(count - generating)
    remedy = (
        f"set {GPUS} and {TO_GENERATE} so that together they request at most {counted(int(count), 'GPU')}"
    )
    correction = None
    if left > 0 and configuration.number(NODES) == 1:
        correction = settings(
            configuration, {GPUS: left}, f"{count:g} GPUs less {generating:g} to generate", _EFFECT
        )
    return Finding(
        (
            f"the job requests {counted(int(training), 'GPU')} to train and "
            f"{counted(int(generating), 'GPU')} to generate, but {where}"
        ),
        Evidence(found=counted(int(count), "GPU"), wanted=counted(int(training + generating), "GPU")),
        location=place(word) if word else None,
        remedy=remedy,
        severity="error",
        **healed("CFG111", correction),
        subject=Subject("setting", GPUS),
        stops=(EVERY_JOB,),
        phase="engine",
    )


def _more_than_slurm_gives(
    configuration: Configuration, variables: JobVariables, launch: Launch
) -> Finding | None:
    """The finding for a batch script that requests too little. In an allocation, that one counts."""
    if variables.has(ALLOCATION) or (variables.has(RAY_ADDRESS) and not launch.ray_starts):
        return None
    for key, given, unit, each in (
        (NODES, launch.nodes, "node", ""),
        (GPUS, launch.gpus_per_node, "GPU", " on each node"),
    ):
        wanted, word = configuration.number(key), configuration.override_of(key)
        if word is None or wanted is None or not given or wanted <= given:
            continue
        return Finding(
            (
                f"the job requests {counted(int(wanted), unit)}{each}, but the script requests {given} from "
                "Slurm"
            ),
            Evidence(found=f"{given} in #SBATCH", wanted=f"{key}={wanted:g}", read_from=launch.files[0][0]),
            location=place(word),
            remedy=f"set {key}={given}, or request {counted(int(wanted), unit)}{each} from Slurm",
            severity="error",
            **healed("CFG111", settings(configuration, {key: given}, effect=_EFFECT)),
            subject=Subject("setting", key),
            stops=(EVERY_JOB,),
            phase="workers",
        )
    return None


def _fewer(configuration: Configuration, wanted: int, nodes: int, has: int) -> Correction | None:
    """As many nodes, or GPUs on one node, as Ray is given.

    If Ray is given none, give it as many GPUs as the job requests.
    """
    if not has:
        why = f"{wanted} * {nodes} = {wanted * nodes} GPUs are what the job requests"
        return settings(configuration, {f"{RAY_INIT}.num_gpus": wanted * nodes}, why)
    if has >= wanted:
        return settings(
            configuration, {NODES: has // wanted}, f"{has} GPUs are {has // wanted} * {wanted}", _EFFECT
        )
    return settings(
        configuration, {GPUS: has, **({NODES: 1} if nodes > 1 else {})}, f"Ray has {has}", _EFFECT
    )


def _hidden(configuration: Configuration, variables: JobVariables, visible: int, wanted: float) -> Finding:
    word, here = configuration.override_of(GPUS), variables.places.get(VISIBLE)
    value = variables.values[VISIBLE]
    return Finding(
        (
            f"the job requests {counted(int(wanted), 'GPU')} on each node, but {VISIBLE} shows "
            f"{'only ' if visible else ''}{counted(visible, 'GPU')}"
        ),
        Evidence(
            found=f"{VISIBLE}={value}",
            wanted=f"{GPUS}={wanted:g}" + ("" if word else ", verl's default"),
            read_from=f"{here[0]}:{here[1]}" if here else "this shell",
        ),
        location=Location(*here) if here else place(word) if word else None,
        remedy=f"set {GPUS}={visible}, or list {counted(int(wanted), 'GPU')} in {VISIBLE}"
        if visible
        else f"list {counted(int(wanted), 'GPU')} in {VISIBLE}",
        severity="error",
        **healed("CFG111", settings(configuration, {GPUS: visible}, effect=_EFFECT) if visible else None),
        subject=Subject("setting", GPUS),
        stops=(EVERY_JOB,),
        phase="workers",
    )
