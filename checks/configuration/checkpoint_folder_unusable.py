"""CFG124: a folder to which the job writes cannot be created."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import Healed, healed, reworded
from verl_doctor.checks.shared.variables import not_set, places
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.host.output_folders import (
    BACKUP,
    HYDRA_FOLDER,
    TIMELINE,
    BackupFolder,
    CheckpointFolder,
    DatasetsCache,
    HydraFolder,
    MetricsFile,
    OutputFolder,
    SamplesFolder,
    TimelineFile,
    TrackerFolder,
)
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Phase, Subject, check

_KEY = "trainer.default_local_dir"
_EVERY = "trainer.save_freq"
_JOB = configured(f"+{_KEY}=/data/ckpt")
_WHY = {
    "a file is in the way": "{above} is not a folder",
    "no permission to write": "you cannot write to {above}",
    "read-only": "{above} is mounted read-only",
    "of the kernel": "nothing can be created in {above}",
    "over the disk quota": "the disk quota of {above} is used up",
}


def _examples() -> list[Example]:
    return [
        Example("the folder can be created", (*_JOB, CheckpointFolder(path="/data/ckpt", above="/data"))),
        Example(
            "a folder in /proc or /sys",
            (*_JOB, CheckpointFolder(path="/proc/ckpt", above="/proc", trouble="of the kernel")),
            "checkpoints go to /proc/ckpt, but nothing can be created in /proc",
        ),
        Example(
            "Hydra's folder",
            (
                *configured(f"{HYDRA_FOLDER}=/proc/outputs"),
                HydraFolder(path="/proc/outputs", above="/proc", trouble="of the kernel"),
            ),
            "Hydra writes to /proc/outputs",
        ),
        Example(
            "tables in /proc",
            (
                *_JOB,
                DatasetsCache(
                    path="/proc/datasets",
                    above="/proc",
                    trouble="of the kernel",
                    variable="HF_DATASETS_CACHE",
                ),
            ),
            "datasets keeps tables in /proc/datasets, but nothing can be created in /proc",
        ),
        Example(
            "TensorBoard's folder",
            (
                *_JOB,
                TrackerFolder(
                    path="/proc/tb",
                    above="/proc",
                    trouble="of the kernel",
                    tracker="tensorboard",
                    variable="TENSORBOARD_DIR",
                ),
            ),
            "the tracker tensorboard writes to /proc/tb, but nothing can be created in /proc",
        ),
        Example(
            "generated texts into a file",
            (
                *_JOB,
                SamplesFolder(
                    path="/data/texts",
                    above="/data/texts",
                    trouble="a file is in the way",
                    key="trainer.rollout_data_dir",
                ),
            ),
            "generated texts go to /data/texts, but /data/texts is not a folder",
        ),
        Example(
            "copies of checkpoints",
            (*configured(f"+{BACKUP}=/job/backup"), BackupFolder(path="/job/backup", above="/job")),
        ),
        Example(
            "a file in place of the copies",
            (
                *configured(f"+{BACKUP}=/job/backup"),
                BackupFolder(path="/job/backup", above="/job/backup", trouble="a file is in the way"),
            ),
            "checkpoints are copied to /job/backup, but /job/backup is not a folder",
        ),
        Example("a timeline", (*configured(f"+{TIMELINE}=/data/t.json"), TimelineFile("/data/t.json"))),
        Example(
            "a timeline in no folder",
            (
                *configured(f"+{TIMELINE}=/data/traces/t.json"),
                TimelineFile(path="/data/traces/t.json", missing_folder="/data/traces"),
            ),
            "Ray's timeline goes to /data/traces/t.json, but /data/traces does not exist",
        ),
        Example("metrics in an existing folder", (*_JOB, MetricsFile("/data/m.jsonl"))),
        Example(
            "metrics in no folder",
            (
                *_JOB,
                MetricsFile(
                    path="/data/m/a.jsonl", missing_folder="/data/m", named_by="VERL_FILE_LOGGER_PATH"
                ),
            ),
            "the tracker file writes to /data/m/a.jsonl, but /data/m does not exist",
        ),
        Example("no folder, and nothing is saved", (*configured(f"++{_KEY}=null", f"++{_EVERY}=-1"),)),
        Example(
            "no folder",
            (*configured(f"++{_KEY}=null", f"++{_EVERY}=10"),),
            "is null, but the job saves after every 10 steps",
        ),
        Example(
            "another user's folder",
            (*_JOB, CheckpointFolder(path="/data/ckpt", above="/data", trouble="no permission to write")),
            "you cannot write to /data",
        ),
        Example(
            "a file in place of the folder of a fine-tuning job",
            (
                *configured(f"++{_KEY}=/job/saved", tree={"trainer": {"save_freq": -1}}),
                CheckpointFolder(path="/job/saved", above="/job/saved", trouble="a file is in the way"),
            ),
            "checkpoints go to /job/saved, but /job/saved is not a folder",
        ),
        Example(
            "a quota",
            (*_JOB, CheckpointFolder(path="/data/ckpt", above="/data", trouble="over the disk quota")),
            "the disk quota of /data is used up",
        ),
        Example(
            "a file system that is not mounted here",
            (*_JOB, CheckpointFolder(path="/data/ckpt", above="/", trouble="no permission to write")),
            "you cannot write to /",
        ),
    ]


@check("CFG124", requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2")
def checkpoint_folder_unusable(
    configuration: Configuration,
    folder: CheckpointFolder | Unknown,
    hydra: HydraFolder | Unknown,
    cache: DatasetsCache | Unknown,
    board: TrackerFolder | Unknown,
    samples: SamplesFolder | Unknown,
    timeline: TimelineFile | Unknown,
    backup: BackupFolder | Unknown,
    metrics: MetricsFile | Unknown,
    variables: Variables | Unknown,
    launch: Launch | Unknown,
) -> Iterator[Finding]:
    """A folder that the job writes to cannot be created.

    It is the folder for checkpoints, Hydra's output, a tracker's logs, generated texts or cached tables.

    ## Why it matters
    verl creates `trainer.default_local_dir` when it first saves, after `save_freq` steps; what was trained
    until then is lost. Hydra creates `hydra.run.dir` before the program begins. `datasets`, with which verl
    reads its tables, creates HF_DATASETS_CACHE, or `datasets` in HF_HOME, before it reads the first. Before
    the first step, the trackers `tensorboard` and `file` create TENSORBOARD_DIR and VERL_FILE_LOGGER_ROOT,
    but no folder for VERL_FILE_LOGGER_PATH or for a slash in the experiment's name; after it, generated texts
    go to `trainer.rollout_data_dir`. The SFT trainer copies each checkpoint to `trainer.default_hdfs_dir`,
    which may be a local folder. When the training has ended, Ray opens `ray_kwargs.timeline_json_file`, and
    creates no folder for it.

    ## How to fix
    Name a folder that you can write to and that every node sees. On a login node, ignore the finding if the
    file system is mounted on the compute nodes only.
    """
    if isinstance(hydra, HydraFolder) and hydra.trouble and hydra.above != "/":
        word = configuration.override_of(HYDRA_FOLDER)
        effect = "Hydra writes to outputs/ in the folder in which the job starts"
        subject = Subject("folder", hydra.path)
        yield _of_key(hydra, "Hydra writes to", subject, (HYDRA_FOLDER, word), "composition", effect)
    if isinstance(cache, DatasetsCache) and cache.trouble and cache.above != "/":
        yield Finding(
            f"datasets keeps tables in {cache.path}, but {_WHY[cache.trouble].format(above=cache.above)}",
            Evidence(found=cache.trouble, wanted="a writable folder", read_from=cache.variable),
            remedy=f"set {cache.variable} to a folder that you can write to",
            subject=Subject("folder", cache.path, cache.variable),
            stops=(EVERY_JOB,),
            phase="workers",
            **_unset(cache.variable, variables, launch),
        )
    if isinstance(board, TrackerFolder) and board.trouble and board.above != "/":
        yield Finding(
            (
                f"the tracker {board.tracker} writes to {board.path}, but "
                f"{_WHY[board.trouble].format(above=board.above)}"
            ),
            Evidence(found=board.trouble, wanted="a writable folder", read_from=board.variable),
            remedy=f"set {board.variable} to a folder that you can write to",
            subject=Subject("folder", board.path, board.variable),
            stops=(EVERY_JOB,),
            phase="first batch",
            **_unset(board.variable, variables, launch),
        )
    if isinstance(samples, SamplesFolder) and samples.trouble and samples.above != "/":
        word = configuration.override_of(samples.key)
        effect = "no generated texts are kept"
        subject = Subject("folder", samples.path, samples.key)
        yield _of_key(samples, "generated texts go to", subject, (samples.key, word), "first batch", effect)
    if isinstance(backup, BackupFolder) and backup.trouble and backup.above != "/":
        word = configuration.override_of(BACKUP)
        effect = "checkpoints are not copied"
        subject = Subject("folder", backup.path, BACKUP)
        yield _of_key(backup, "checkpoints are copied to", subject, (BACKUP, word), "checkpoint", effect)
    if isinstance(timeline, TimelineFile) and timeline.missing_folder:
        word = configuration.override_of(TIMELINE)
        yield Finding(
            f"Ray's timeline goes to {timeline.path}, but {timeline.missing_folder} does not exist",
            Evidence(
                found=word.text if word else f"{TIMELINE}={timeline.path}", wanted="a folder that exists"
            ),
            location=place(word) if word else None,
            remedy=f"create it first: mkdir -p {timeline.missing_folder}",
            subject=Subject("folder", timeline.missing_folder, TIMELINE),
            stops=(EVERY_JOB,),
            phase="end",
            **_made(timeline)
            or healed("CFG124", reworded(word, None, effect="no timeline is written") if word else None),
        )
    if isinstance(metrics, MetricsFile) and metrics.missing_folder:
        word = configuration.override_of(metrics.named_by)
        yield Finding(
            f"the tracker file writes to {metrics.path}, but {metrics.missing_folder} does not exist",
            Evidence(
                found=word.text if word else metrics.named_by,
                wanted="a folder that exists",
                read_from=metrics.named_by,
            ),
            location=place(word) if word else None,
            remedy=f"create it first: mkdir -p {metrics.missing_folder}",
            subject=Subject("folder", metrics.missing_folder, metrics.named_by),
            stops=(EVERY_JOB,),
            phase="first batch",
            **_made(metrics),
        )
    nowhere = configuration.override_of(_KEY)
    saves = configuration.number(_EVERY)
    if nowhere is not None and configuration.get(_KEY) is None and saves is not None and saves > 0:
        yield Finding(
            f"{_KEY} is null, but the job saves after every {saves} steps"
            if saves > 1
            else f"{_KEY} is null, but the job saves after every step",
            Evidence(found=nowhere.text, wanted="a writable folder"),
            location=place(nowhere),
            remedy=f"remove the setting, or set {_EVERY}=-1",
            subject=Subject("setting", _KEY),
            stops=(EVERY_JOB,),
            phase="checkpoint",
            **healed("CFG124", reworded(nowhere, None, effect=_elsewhere(configuration))),
        )
    if isinstance(folder, Unknown) or not folder.trouble:
        return
    word = configuration.override_of(_KEY)
    # A job that only fine-tunes saves its last step in any case.
    has_rollouts = configuration.has("actor_rollout_ref")
    certain = folder.above != "/"  # otherwise a file system may not be mounted here
    yield Finding(
        f"checkpoints go to {folder.path}, but {_WHY[folder.trouble].format(above=folder.above)}",
        Evidence(found=folder.trouble, wanted="a writable folder", read_from=folder.above),
        location=place(word) if word else None,
        remedy=(
            f"set {_KEY} to a folder that you can write "
            f"to{', or trainer.save_freq=-1' if has_rollouts else ''}"
        ),
        severity=None if certain else "warning",
        subject=Subject("folder", folder.path),
        stops=(EVERY_JOB,) if certain else (),
        phase="start" if has_rollouts else "checkpoint",
        **healed(
            "CFG124",
            reworded(word, None, effect=_elsewhere(configuration)) if word else None,
        ),
    )


def _elsewhere(configuration: Configuration) -> str:
    return f"checkpoints go to verl's own folder: {configuration.default(_KEY)}"


def _of_key(
    folder: OutputFolder,
    goes: str,
    subject: Subject,
    named_by: tuple[str, OverrideWord | None],
    phase: Phase,
    effect: str,
) -> Finding:
    """The finding for a folder that a key names.

    `goes` is what goes there, `effect` what follows if the key is left out.
    """
    key, word = named_by
    return Finding(
        f"{goes} {folder.path}, but {_WHY[folder.trouble].format(above=folder.above)}",
        Evidence(found=folder.trouble, wanted="a writable folder", read_from=folder.above),
        location=place(word) if word else None,
        remedy=f"set {key} to a folder that you can write to",
        subject=subject,
        stops=(EVERY_JOB,),
        phase=phase,
        **healed("CFG124", reworded(word, None, effect=effect) if word else None),
    )


def _made(file: MetricsFile | TimelineFile) -> Healed:
    """A folder that the user can make is made before the job starts."""
    return {"fix": "output-folder-made"} if file.makeable else {}


def _unset(name: str, variables: Variables | Unknown, launch: Launch | Unknown) -> Healed:
    """A variable that a file sets to such a folder is left out."""
    if isinstance(variables, Unknown):
        return {}
    at = next(reversed(places(name, variables, launch)), None)
    return healed("CFG124", not_set(at))
