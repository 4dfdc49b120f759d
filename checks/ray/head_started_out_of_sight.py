"""RAY117: the launch script starts its head in a folder where the job does not look for it."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.ray.addresses import UNDETERMINED, Place, RayAddresses
from verl_doctor.toolkit.collectors.ray.job_nodes import option
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_OPTION = "--temp-dir"
_HEAD = ray_place(source="ray start --head", reply="refused")


def _script(*words: str, trains: bool = True) -> Launch:
    command = Command(module="verl.trainer.main_ppo", words=(), path="run.sh", line=9) if trains else None
    starts = (tuple(Word(text=word, path="run.sh", line=4) for word in ("--head", *words)),)
    return Launch((("run.sh", "shell script"),), command=command, ray_starts=starts)


def _looks(*places: Place, folder: str = "/tmp/ray") -> RayAddresses:
    return RayAddresses((*places, _HEAD), folder=folder)


def _examples() -> list[Example]:
    return [
        Example("the usual folder", (_looks(), _script())),
        Example(
            "the same folder", (_looks(folder="/scratch/me/ray"), _script("--temp-dir=/scratch/me/ray/"))
        ),
        Example("the job has its address", (_looks(ray_place()), _script("--temp-dir=/scratch/me"))),
        Example("auto finds its processes", (_looks(ray_place("auto")), _script("--temp-dir=/scratch/me"))),
        Example(
            "the job is started by something else",
            (_looks(), _script("--temp-dir=/scratch/me", trains=False)),
        ),
        Example(
            "the folder that the job searches is unknown",
            (_looks(folder=UNDETERMINED), _script("--temp-dir=/scratch/me")),
        ),
        Example(
            "a folder of its own",
            (_looks(), _script("--temp-dir", "/scratch/me")),
            "the job looks for it in /tmp/ray",
        ),
    ]


@check("RAY117", phase="ray", examples=_examples)
def head_started_out_of_sight(addresses: RayAddresses, launch: Launch) -> Iterator[Finding]:
    """The launch script starts its head in a folder where the job does not look for it.

    ## Why it matters

    `ray start --head --temp-dir=` writes the head's address to that folder, but `ray.init()` looks for it in
    RAY_TMPDIR or `/tmp/ray`. It finds none and silently starts its own Ray, on this machine alone, without
    the nodes that joined the head. Or it finds another job's.

    ## How to fix

    Run `export RAY_ADDRESS=` with the head's address before the job, or replace `--temp-dir` with RAY_TMPDIR
    for both.
    """
    if launch.command is None or addresses.submitted or addresses.folder == UNDETERMINED:
        return
    if any(place.text for place in addresses.places if place.source in ("ray.init", "RAY_ADDRESS")):
        return
    head = addresses.head.address if addresses.head is not None else "the head's address"
    for words in launch.ray_starts:
        word = option(words, _OPTION)
        if not any(word.text == "--head" for word in words) or word is None or not word.text:
            continue
        if word.text.rstrip("/") == addresses.folder.rstrip("/"):
            continue
        yield Finding(
            (
                f"ray start {_OPTION}={word.text} writes the head's address there, but the job looks for it "
                f"in {addresses.folder}"
            ),
            Evidence(
                f"{_OPTION}={word.text}",
                f"RAY_ADDRESS={head}, or {addresses.folder}",
                f"{word.path}:{word.line}",
            ),
            subject=Subject("folder", word.text),
            location=Location(word.path, word.line),
            remedy=f"export RAY_ADDRESS={head} before the job starts",
        )
