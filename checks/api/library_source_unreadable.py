"""API104: a source file that the trainer or one of its libraries needs cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.api._api_examples import PATHS, seen
from verl_doctor.checks.api._api_messages import title
from verl_doctor.checks.api._libraries_unjudged import libraries_unjudged
from verl_doctor.checks.api._unread import unread_file
from verl_doctor.toolkit.collectors.api.uses import LibraryUses, Unread, VllmUses, every_path
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Example, Finding, check

_TRAINER = Unread(
    module="verl.trainer.main_ppo",
    path="/env/verl/trainer/main_ppo.py",
    reason="line 12: invalid syntax",
    paths=("trainer",),
    line=12,
)
_DAMAGED = Unread(
    module="transformers.cache_utils",
    path="/env/transformers/cache_utils.py",
    reason="line 7: '(' was never closed",
    paths=PATHS,
    line=7,
)
_NO_VLLM = Absent("vLLM is not installed in this environment")


def _examples() -> list[Example]:
    return [
        Example("every file can be read", (*seen(), _NO_VLLM)),
        Example(
            "the trainer is broken", (*seen(unread=(_TRAINER,)), _NO_VLLM), expect="verl.trainer.main_ppo"
        ),
        Example(
            "a file of a library is damaged",
            (*seen(damaged=(_DAMAGED,)), _NO_VLLM),
            expect="this transformers is damaged",
        ),
    ]


@check("API104", phase="import", paths=every_path, unjudged=libraries_unjudged, examples=_examples)
def library_source_unreadable(uses: LibraryUses, vllm: VllmUses | Unknown) -> Iterator[Finding]:
    """A source file that the trainer or one of its libraries needs cannot be read.

    VLLM105 covers the files of the rollouts.

    ## Why it matters

    Python cannot import a file that is missing, unreadable or broken: the job fails where it loads the file,
    on every node. Other rules cannot check this file either.

    ## How to fix

    Look at the line. Common causes are a half-finished merge, a manual edit, and a file truncated by a full
    disk. If the file came with a wheel, reinstall the package; if verl-doctor changed it, run `verl-doctor
    undo`.
    """
    known_unread = set() if isinstance(vllm, Unknown) else {file.path for file in vllm.unread}
    for file in uses.unread:
        if file.path not in known_unread:
            yield unread_file(file, "verl")
    for library in uses.answers:
        for file in library.unread:
            yield unread_file(file, title(library), damaged=f"this {title(library)} is damaged: ")
