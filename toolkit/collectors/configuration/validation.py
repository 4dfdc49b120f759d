"""What verl's own validating code refuses in the job's configuration, read without running it."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.rule import Phase


@dataclass(frozen=True)
class Raised:
    """What verl raises: `raised` is the type, `text` its words, `read_from` the place as "path:line".

    `condition` is the source of the condition, `keys` are those of the configuration that it is made of. `phase` is where the job is then.
    `nearest` is the value of `nearest_key`, in Hydra's grammar, for which the same code raises nothing; both are "" where none was found.
    """

    raised: str
    text: str
    read_from: str
    condition: str
    keys: tuple[str, ...]
    phase: Phase
    nearest_key: str = ""
    nearest: str = ""


@dataclass(frozen=True)
class Validation:
    """What is certain to be raised. What cannot be followed is not among it."""

    raised: tuple[Raised, ...] = ()
