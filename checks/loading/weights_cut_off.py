"""LOAD104: a file of weights does not match its header, or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.loading._weights import files_of, shard
from verl_doctor.toolkit.collectors.model.files import ModelFiles, WeightFile
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import in_bytes, listed

_SHOWN = 3


def _examples() -> list[Example]:
    return [
        Example(
            "each file ends with its last tensor", (files_of(shard("1.safetensors"), shard("2.safetensors")),)
        ),
        Example(
            "a pickle has no header",
            (files_of(WeightFile(name="pytorch_model.bin", format="pickle", size=100)),),
        ),
        Example("a header that was not read", (files_of(shard("1.safetensors", ends=None)),)),
        Example(
            "an interrupted download",
            (files_of(shard("1.safetensors", size=700, ends=1000)),),
            "ends before its tensors do: 1.safetensors",
        ),
        Example(
            "something was appended",
            (files_of(shard("1.safetensors", size=1200, ends=1000)),),
            "longer than its tensors",
        ),
        Example(
            "an empty file",
            (files_of(shard("1.safetensors", size=0, ends=None, trouble="its header is invalid")),),
            "its header is invalid",
        ),
        Example(
            "the cache of the hub was cleared",
            (
                files_of(
                    shard("1.safetensors", size=0, ends=None, trouble="it is a broken link", linked=True)
                ),
            ),
            "broken link",
        ),
    ]


@check("LOAD104", phase="workers", examples=_examples)
def weights_cut_off(files: ModelFiles) -> Iterator[Finding]:
    """A file of weights does not match its header, or cannot be read.

    ## Why it matters

    An interrupted download, a full disk or an unfinished copy leaves files that look complete by their names.
    Every worker notices minutes into the run: `MetadataIncompleteBuffer`, `incomplete metadata, file not
    fully covered`, `HeaderTooLarge`, or a bus error if the file was truncated while it was mapped.

    ## How to fix

    Download the listed files again: `hf download NAME --local-dir DIR` compares the sizes. If a copy is in
    progress, wait until it is complete.
    """
    short = [file for file in files.loaded if file.ends is not None and file.size < file.ends]
    long = [file for file in files.loaded if file.ends is not None and file.size > file.ends]
    if short:
        yield _finding(files, short, "ends before its tensors do")
    if long:
        yield _finding(files, long, "is longer than its tensors")
    for file in files.loaded:
        if file.trouble:
            yield Finding(
                f"{file.name} of {files.folder} cannot be read: {file.trouble}",
                Evidence(file.trouble, "weights in safetensors format", files.folder),
                subject=Subject("file", f"{files.folder}/{file.name}"),
                location=Location(f"{files.folder}/{file.name}"),
                remedy="download the file again",
            )


def _finding(files: ModelFiles, wrong: list[WeightFile], how: str) -> Finding:
    first = wrong[0]
    return Finding(
        f"in {files.folder} a file {how}: {listed((file.name for file in wrong), _SHOWN)}",
        Evidence(
            found=f"{first.name} has {first.size:,} bytes ({in_bytes(first.size)})",
            wanted=f"{first.ends:,} bytes by its header",
            read_from=files.folder,
        ),
        subject=Subject("file", f"{files.folder}/{first.name}"),
        location=Location(f"{files.folder}/{first.name}"),
        remedy="download the file again; if it is being copied, wait until the copy is complete",
    )
