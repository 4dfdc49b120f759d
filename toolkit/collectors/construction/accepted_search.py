"""Tries other settings until construction accepts the job: single edits for one fault, then the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.construction.accepted import Accepted, Setting
from verl_doctor.toolkit.collectors.construction.accepted_trials import trials, unclear
from verl_doctor.toolkit.collectors.construction.construction import BAD, Built, Construction, Ended
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.hydra.written import as_written

Build = Callable[[Iterable[str], str], Construction | Unknown]
"""Builds the job with these overrides.

It goes no further than the named stage unless that succeeds; "" for all stages.
"""

_MOST = 60  # configurations that are tried
_MOST_EDITS = 3
_MORE = 8  # configurations after one in which the stage that fails is not needed
_FINE: frozenset[Ended] = frozenset({"ok", "not needed"})


@dataclass(frozen=True)
class _State:
    """The settings so far, and what construction makes of the job with them."""

    settings: tuple[Setting, ...]
    built: Construction

    @property
    def faults(self) -> list[Built]:
        """The stages that fail, in their order."""
        return [built for built in self.built.stages if built.ended in BAD]


class _OverError(Exception):
    """Nothing more can be tried."""


def search(
    as_it_is: Construction, configuration: Configuration, overrides: Sequence[str], build: Build, folder: Path
) -> Accepted:
    """Return the nearest settings with which no stage fails, for a job that starts in `folder`.

    `overrides` are the job's own words, as Hydra receives them.
    """
    return _Search(configuration, overrides, build, folder).run(_State((), as_it_is))


class _Search:
    def __init__(
        self, configuration: Configuration, overrides: Sequence[str], build: Build, folder: Path
    ) -> None:
        self._configuration, self._overrides, self._build, self._folder = (
            configuration,
            overrides,
            build,
            folder,
        )
        self._tried = 0

    def run(self, state: _State) -> Accepted:
        """Repair the first fault until none is left."""
        try:
            while faults := state.faults:
                better = self._better(state, faults[0]) if len(state.settings) < _MOST_EDITS else None
                if better is None:
                    return self._none(faults[0])
                state = better
            state = self._needed(state)
        except _OverError:
            return self._none(state.faults[0]) if state.faults else Accepted(state.settings, self._tried)
        return Accepted(state.settings, self._tried)

    def _none(self, fault: Built) -> Accepted:
        names = unclear(fault, self._configuration, self._folder) if fault.ended == "breaks" else ()
        left = f"{fault.stage}: {fault.kind}: {fault.text}"
        return Accepted(tried=self._tried, left=left, unclear=names)

    def _better(self, state: _State, fault: Built) -> _State | None:
        """Return the first state in which the stage of this fault succeeds.

        Otherwise, return one without the stage, or one where the stage fails elsewhere.
        """
        idle: _State | None = None
        moved: _State | None = None
        last = _MOST
        for setting in (
            trials(fault, self._configuration, self._folder, state.settings)
            if fault.ended == "breaks"
            else ()
        ):
            if self._tried >= last:
                break
            after = self._tried_with(state, (*state.settings, setting), fault.stage)
            if _heals(state, after, fault, "ok") or (
                setting.key == fault.key and _heals(state, after, fault, "not needed")
            ):
                return after
            if idle is None and _heals(state, after, fault, "not needed"):
                idle, last = after, self._tried + _MORE  # it may only switch off what fails
            if moved is None and _moves(state, after, fault):
                moved = after
        return idle or moved

    def _needed(self, state: _State) -> _State:
        """Return the state without the settings that are not needed."""
        for setting in state.settings:
            if fewer := tuple(other for other in state.settings if other is not setting):
                after = self._tried_with(state, fewer, "")
                state = state if after.faults or not _keeps(state, after) else after
        return state

    def _tried_with(self, state: _State, settings: tuple[Setting, ...], until: str) -> _State:
        if self._tried >= _MOST:
            raise _OverError
        self._tried += 1
        built = self._build(with_settings(self._configuration, self._overrides, settings), until)
        if isinstance(built, Unknown):
            raise _OverError
        return replace(state, settings=settings, built=built)


def with_settings(
    configuration: Configuration, overrides: Sequence[str], settings: Iterable[Setting]
) -> list[str]:
    """Return the words of the command with these settings."""
    changed: dict[int, str | None] = {}
    added: list[str] = []
    for setting in settings:
        word = configuration.override_of(setting.key)
        if word is None:
            added.append(
                f"{'' if configuration.has(setting.key) else '+'}{setting.key}={as_written(setting.value)}"
            )
            continue
        place = next(number for number, other in enumerate(configuration.overrides) if other is word)
        head = word.text.partition("=")[0]
        changed[place] = None if setting.left_out else f"{head}={as_written(setting.value)}"
    words = (changed.get(number, text) for number, text in enumerate(overrides))
    return [*(word for word in words if word is not None), *added]


def _heals(before: _State, after: _State, fault: Built, ended: Ended) -> bool:
    """Return whether the stage of this fault ends like this now, and nothing that succeeded is lost."""
    built = after.built.get(fault.stage)
    return built is not None and built.ended == ended and _keeps(before, after)


def _keeps(before: _State, after: _State) -> bool:
    """Return whether each stage that succeeded still does.

    In addition, those that failed are still judged, and no other fails that was judged before.
    """
    was, now = _ended(before), _ended(after)
    judged = {name: ended for name, ended in was.items() if ended != "not reached"}
    return (
        now.keys() >= was.keys()
        and all(now[name] in _FINE for name, ended in judged.items() if ended in _FINE)
        and all(now[name] in _FINE | BAD for name, ended in judged.items() if ended in BAD)
        and all(now[name] not in BAD for name, ended in judged.items() if ended not in _FINE | BAD)
    )


def _moves(before: _State, after: _State, fault: Built) -> bool:
    """Return whether the stage fails at another line now: a second fault may have been behind the first."""
    built = after.built.get(fault.stage)
    if built is None or built.ended != "breaks" or not built.frames or not fault.frames:
        return False
    reached = [name for name, ended in _ended(before).items() if ended in _FINE]
    kept = all(_ended(after).get(name) in _FINE for name in reached[: _place(before, fault)])
    return kept and (built.kind, built.frames[-1]) != (fault.kind, fault.frames[-1])


def _place(state: _State, fault: Built) -> int:
    """Return how many stages succeeded before this one."""
    names = [built.stage for built in state.built.stages]
    return sum(built.ended in _FINE for built in state.built.stages[: names.index(fault.stage)])


def _ended(state: _State) -> dict[str, Ended]:
    return {built.stage: built.ended for built in state.built.stages}
