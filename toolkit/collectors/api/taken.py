"""The paths of verl that the launch script's job takes: breaks on the others do not stop it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from verl_doctor.toolkit.collectors.api.job_entries import BACKENDS, TRAINER
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses, Unread
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, UNDETERMINED, Configuration
from verl_doctor.toolkit.facts import Unknown

_SECTION = "actor_rollout_ref"
_NAME, _MODE = f"{_SECTION}.rollout.name", f"{_SECTION}.rollout.mode"
_PPO = ("trainer", "main_ppo.py")

_Uses = TypeVar("_Uses", bound=ApiUses)


def paths_taken(configuration: Configuration | Unknown) -> frozenset[str] | None:
    """Return the job's paths; None without a launch script, or if its configuration does not decide.

    A job without a rollout section, such as supervised fine-tuning, takes none of them.
    """
    if isinstance(configuration, Unknown) or configuration.refused:
        return None
    if configuration.get(_SECTION) is MISSING:
        return frozenset()
    name, mode = configuration.get(_NAME), configuration.get(_MODE)
    if name is UNDETERMINED or name is MISSING:
        return None
    if name not in BACKENDS:
        return frozenset({TRAINER})
    backend = BACKENDS[name]
    path = {"sync": backend.sync_path, "async": backend.async_path}.get(str(mode))
    if (
        path is None or PurePath(configuration.program).parts[-2:] != _PPO
    ):  # other trainers set the mode themselves
        return frozenset({TRAINER, backend.sync_path, backend.async_path})
    return frozenset({TRAINER, path})


def of_vllm(uses: _Uses, taken: frozenset[str] | None) -> _Uses:
    """Return the uses on the paths that are taken, or on all paths if verl has none of those."""
    paths = _among(uses.paths, taken)
    return uses if paths == uses.paths else _on(uses, paths)


def of_libraries(uses: LibraryUses, taken: frozenset[str] | None) -> LibraryUses:
    """Like `of_vllm`, for the other libraries."""
    paths = _among(uses.paths, taken)
    if paths == uses.paths:
        return uses
    answers = tuple(_on(answer, paths) for answer in uses.answers)
    return replace(uses, answers=answers, paths=paths, unread=tuple(_loaded(uses.unread, paths)))


def _among(paths: tuple[str, ...], taken: frozenset[str] | None) -> tuple[str, ...]:
    if taken is None:
        return paths
    kept = tuple(path for path in paths if path in taken)
    wanted = taken - {TRAINER}
    return paths if wanted and wanted.isdisjoint(paths) else kept


def _on(uses: _Uses, paths: Collection[str]) -> _Uses:
    return replace(
        uses,
        uses=tuple(_use(use, paths) for use in uses.uses),
        paths=tuple(path for path in uses.paths if path in paths),
        unread=tuple(_loaded(uses.unread, paths)),
    )


def _use(use: ApiUse, paths: Collection[str]) -> ApiUse:
    kept = tuple(path for path in use.paths if path in paths)
    return use if kept == use.paths else replace(use, paths=kept, elsewhere=() if kept else use.paths)


def _loaded(files: tuple[Unread, ...], paths: Collection[str]) -> list[Unread]:
    return [replace(file, paths=tuple(path for path in file.paths if path in paths)) for file in files]
