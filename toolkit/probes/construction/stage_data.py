"""The data sets, samplers and loaders, and the first batch of each through the collate function."""

from __future__ import annotations

import time
from typing import Any

from verl_doctor.toolkit.probes.construction.excerpts import Excerpt, excerpt
from verl_doctor.toolkit.probes.construction.find import called, find, has
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_READING = 3.0  # seconds
_REMOTE = ("hdfs://", "s3://", "gs://", "oss://", "tos://", "http://", "https://")


@stage("data sets", "model", seconds=90, users=True)
def data_sets(job: Job) -> None:
    """Build data sets with their filters, samplers and loaders, over the first rows of each file."""
    if not job.has("data"):
        raise NotNeededError("the job has no data")
    parts = {key: _shortened(job, key) for key in ("data.train_files", "data.val_files") if job.value(key)}
    for key, part in parts.items():
        # A single file stays a text: data set classes of the user's own may take only that.
        job.set(key, part.paths[0] if isinstance(job.value(key), str) else part.paths)
    job.notes["partial"] = [key for key, part in parts.items() if not part.whole]
    for key, value in (
        ("data.dataloader_num_workers", 0),
        ("data.num_workers", 0),
        ("data.filter_overlong_prompts_workers", 1),
        ("data.use_shm", False),
        ("data.cache_dir", f"{job.private}/data"),
    ):
        job.set(key, value)
    if "data.train_files" in job.notes["partial"]:
        for key in ("data.train_batch_size", "data.gen_batch_size"):
            if job.value(key):
                job.notes[key] = job.value(key)
                job.set(key, 1)
    try:
        _loaders(job)
    except (ValueError, AssertionError) as error:
        _judge_empty(job, error)
        raise


def _judge_empty(job: Job, error: Exception) -> None:
    """Report that the filters leave no row. Raises NotJudgedError if there are more rows than were read."""
    rows = getattr(job.trainer, "train_dataset", None)
    if rows is None or not hasattr(rows, "__len__") or len(rows):
        return
    if "data.train_files" in job.notes["partial"]:
        raise NotJudgedError("the filters leave none of the first rows")
    raise ValueError(f"the filters leave no row of the training data: {error}") from error


@stage("first batch", "data sets", seconds=60, users=True)
def first_batch(job: Job) -> None:
    """Build the first batch of the training data."""
    loader = getattr(job.trainer, "train_dataloader", None)
    if loader is None:
        raise NotHereError("the data sets of this job have no loader here")
    batch = next(iter(loader), None)
    if batch is None and "data.train_files" in job.notes["partial"]:
        raise NotJudgedError("the filters leave none of the first rows")
    if batch is None:
        raise ValueError(
            f"the training data give no batch: {len(job.trainer.train_dataset)} rows are left after the "
            "filters, and a batch takes "
            f"{job.value('data.gen_batch_size') or job.value('data.train_batch_size')}"
        )
    job.batch = _proto(batch)
    if job.kind == "sft":
        _read_talks(job)
    if hasattr(job.trainer, "_next_train_batch") and "data.train_files" not in job.notes["partial"]:
        job.trainer.global_steps = 1
        job.trainer._next_train_batch()


def _read_talks(job: Job) -> None:
    """Read further talks as the loader does, for a moment, if the job comes to all of them."""
    rows, steps = job.trainer.train_dataset, job.value("trainer.total_training_steps")
    size, epochs = job.value("data.train_batch_size", 1), job.value("trainer.total_epochs", 1)
    in_an_epoch = len(rows) // size  # the loader leaves out the rest
    if min(in_an_epoch * epochs, steps or in_an_epoch * epochs) * size < len(rows):
        return
    end = time.monotonic() + _READING
    for place in range(len(rows)):
        if time.monotonic() > end:
            return
        _ = rows[place]


@stage("first validation batch", "data sets", seconds=60, users=True)
def first_validation_batch(job: Job) -> None:
    """Build the first batch of the validation data, if the job validates."""
    loader = getattr(job.trainer, "val_dataloader", None)
    frequency = job.value("trainer.test_freq", 0)
    validates = job.value("trainer.val_before_train", default=False) or (
        isinstance(frequency, (int, float)) and frequency > 0
    )
    if loader is None or not validates:
        raise NotNeededError("the job does not validate")
    batch = next(iter(loader), None)
    if batch is None:
        raise NotJudgedError("the validation data give no batch")
    job.validation_batch = _proto(batch)


def _shortened(job: Job, key: str) -> Excerpt:
    value = job.value(key)
    paths = [value] if isinstance(value, str) else [str(path) for path in value]
    if any(path.startswith(_REMOTE) for path in paths):
        raise NotJudgedError(f"{key} is on another machine, and nothing is fetched here")
    sizes = [job.value(f"data.{name}", 8) for name in ("gen_batch_size", "train_batch_size")]
    wanted = max(size for size in (*sizes, 8) if isinstance(size, int)) if key == "data.train_files" else 16
    limit = job.value("data.train_max_samples", -1)
    part = excerpt(paths, max(wanted, 16), f"{job.private}/excerpt/{key}")
    whole = part.whole and not (isinstance(limit, int) and 0 < limit < part.rows)
    return Excerpt(part.paths, part.rows, whole or (part.rows >= wanted > 0 and not _filters(job)))


def _filters(job: Job) -> bool:
    """Return whether filters may drop rows."""
    return bool(job.value("data.filter_overlong_prompts", default=False) or job.value("data.custom_cls.path"))


def _loaders(job: Job) -> None:
    if job.kind == "sft":
        _sft(job)
        return
    if job.trainer is not None and hasattr(job.trainer, "_init_dataloader"):
        job.trainer.tokenizer, job.trainer.processor = job.tokenizer, job.processor
        job.trainer._init_dataloader()
        return
    sets = {name: _data_set(job, name) for name in ("train", "val")}
    cls = find("verl.trainer.ppo.ray_trainer:RayPPOTrainer")
    trainer = object.__new__(cls)
    trainer.config, trainer.tokenizer, trainer.processor = job.config, job.tokenizer, job.processor
    sampler = find("verl.trainer.ppo.utils:create_rl_sampler", "verl.trainer.main_ppo:create_rl_sampler")
    collate = find("verl.utils.dataset.rl_dataset:collate_fn")
    trainer.train_dataset = sets["train"]
    job.trainer = trainer
    trainer._create_dataloader(sets["train"], sets["val"], collate, sampler(job.config.data, sets["train"]))


def _data_set(job: Job, name: str) -> Any:
    make = find("verl.trainer.ppo.utils:create_rl_dataset", "verl.trainer.main_ppo:create_rl_dataset")
    return called(
        make,
        data_paths=job.config.data[f"{name}_files"],
        data_config=job.config.data,
        tokenizer=job.tokenizer,
        processor=job.processor,
        is_train=name == "train",
        max_samples=job.value(f"data.{name}_max_samples", -1),
    )


def _sft(job: Job) -> None:
    make = find(
        f"{job.module}:create_sft_dataset",
        "verl.trainer.sft_trainer:create_sft_dataset",
        "verl.trainer.fsdp_sft_trainer:create_sft_dataset",
    )
    files = [key for key in ("train", "val") if job.value(f"data.{key}_files")]
    sets = {
        name: called(
            make,
            data_paths=job.config.data[f"{name}_files"],
            data_config=job.config.data,
            tokenizer=job.tokenizer,
            processor=job.processor,
            max_samples=job.value(f"data.{name}_max_samples", -1),
        )
        for name in files
    }
    job.trainer = _Loaders(job, sets)


class _Loaders:
    """The loaders of an SFT job: a batch of one row each, or of two if the job has a collator."""

    def __init__(self, job: Job, sets: dict[str, Any]) -> None:
        self.train_dataset = sets.get("train")
        self.train_dataloader = _rows(job, sets["train"]) if "train" in sets else None
        self.val_dataloader = _rows(job, sets["val"]) if "val" in sets else None


def _rows(job: Job, data: Any) -> Any:
    from torch.utils.data import DataLoader

    more = {}
    if has("verl.utils.dataset.dataset_utils:SFTTensorCollator") and job.has("data.pad_mode"):
        mode = job.value("data.pad_mode")
        more["collate_fn"] = find("verl.utils.dataset.dataset_utils:SFTTensorCollator")(mode)
    return DataLoader(dataset=data, batch_size=1, num_workers=0, drop_last=True, **more)


def _proto(batch: Any) -> Any:
    """Return the batch as verl passes it on; unchanged if no protocol accepts it."""
    if not isinstance(batch, dict) or not has("verl:DataProto"):
        return batch
    try:
        return find("verl:DataProto").from_single_dict(dict(batch))
    except (ValueError, AssertionError):
        raise
    except TypeError:
        return batch
