"""The errors that verl's own validation raises for the job's configuration, read without running it."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.rule import Phase


@dataclass(frozen=True)
class Raised:
    """An error that verl raises: its type `raised`, message `text` and place `read_from` as "path:line".

    `condition` is the source of the condition, `keys` are the configuration keys it depends on, and `around`
    those of the conditions around it. `phase` is where the job is then. `library` is the package that raises
    it, "" for verl. `nearest` is the value of `nearest_key`, in Hydra's grammar, for which the same code
    raises nothing, and if possible no other code either; both are "" if none was found. `others` are further
    keys with such values, the next nearest first.
    """

    raised: str
    text: str
    read_from: str
    condition: str
    keys: tuple[str, ...]
    phase: Phase
    nearest_key: str = ""
    nearest: str = ""
    around: tuple[str, ...] = ()
    library: str = ""
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Validation:
    """The errors that are certain. Code that cannot be followed is ignored."""

    raised: tuple[Raised, ...] = ()
