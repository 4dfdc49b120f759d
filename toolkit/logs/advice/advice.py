"""What to do about an exception: the first reader that recognises it gives the advice.

Specific readers come first, then those that repeat what the message demands, then other releases of the
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from verl_doctor.toolkit.logs.advice import (
    calls,
    compiled,
    demands,
    figures,
    inputs,
    kinds,
    members,
    missing,
    parts,
    places,
    release_faults,
    remote_code,
    settings,
    subclasses,
    undefined,
)
from verl_doctor.toolkit.logs.lines import Line
from verl_doctor.toolkit.logs.python_errors import Raised


def advised(
    raised: Raised,
    lines: Sequence[Line],
    *,
    is_known: bool = False,
    is_general: bool = False,
    is_refusal: bool = False,
) -> str:
    """Return advice, in parts joined by "; "; "" if there is none.

    `is_known` is whether a signature has a remedy for the exception; general advice is omitted then, except
    for what verl has repaired at this place, if that remedy `is_general`. `is_refusal` is whether the
    exception names the settings that it refuses; advice on other releases is omitted then.
    """
    place = places.place_of(raised.frames)
    readers: tuple[Callable[[], str], ...] = (
        partial(missing.recommended, raised, place),
        partial(missing.needed, raised, place),
        partial(missing.of_version, raised, place),
        partial(missing.announced, raised, place, lines),
        partial(missing.module, raised, place, lines),
        partial(remote_code.of_remote_api, raised, place),
        partial(undefined.name, raised, place, lines),
        partial(undefined.model_type, raised, place, lines),
        partial(members.of_release, raised, place, lines),
        partial(calls.refused, raised, place, lines),
        partial(inputs.of_object, raised, place),
        partial(undefined.attribute, raised, place, lines),
        partial(compiled.unlinked, raised),
        partial(inputs.of_file, raised),
        partial(inputs.of_shapes, raised),
        partial(figures.divisible, raised, lines),
        partial(inputs.of_function, raised, place),
        partial(inputs.of_data, raised, place),
        partial(inputs.of_text, raised),
        partial(settings.of_variable, raised, place),
        partial(settings.mandatory, raised),
        partial(compiled.without_toolkit, raised, place),
        partial(settings.unread, raised),
        partial(undefined.never_set, raised, place),
        partial(calls.twice, raised, place),
        partial(release_faults.without_release, raised, place),
        partial(calls.unpacked, raised, place, lines),
        partial(settings.of_empty, raised),
        partial(calls.not_passed, raised, place, lines),
        partial(undefined.conditional, raised, place, lines),
        partial(release_faults.of_recipe, raised),
        partial(settings.asserted, raised, place, lines),
        partial(settings.unset, raised, place, lines),
        partial(figures.no_number, raised, place, lines),
        partial(compiled.without_gpu, raised),
        partial(subclasses.generated, raised),
    )
    general: tuple[Callable[[], str], ...] = (
        partial(demands.of_fields, raised),
        partial(demands.demanded, raised),
        partial(demands.apart, raised),
        partial(demands.unsupported, raised, place, lines),
    )
    found = next((found for reader in readers if (found := reader())), "")
    if is_known:
        return found or (release_faults.repaired(raised, lines) if is_general else "")
    around = parts.without_part(raised, place)
    if found:
        return "; ".join(filter(None, (found, around)))
    found = next((found for reader in general if (found := reader())), "")
    keys = settings.set_by(raised, lines)
    if not found and keys:
        return "correct " + " and ".join(f"{key}, which sets {name} in verl" for name, key in keys.items())
    if not found and not is_refusal:
        last: tuple[Callable[[], str], ...] = (
            partial(remote_code.of_remote_code, raised, place),
            partial(kinds.of_system, raised, place),
            partial(release_faults.unexplained, raised, place, lines),
            partial(release_faults.passed_on, raised, place),
            partial(kinds.of_failure, raised, place),
        )
        found = next((found for reader in last if (found := reader())), "")
    return "; ".join(
        filter(None, (found, around, *(f"in verl, {name} is {key}" for name, key in keys.items())))
    )
