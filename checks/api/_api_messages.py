"""Findings about an import, an attribute or a call that the library does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_doctor.checks.api._api_breaks import breaks, finding, judged
from verl_doctor.checks.api._successors import SUCCESSORS
from verl_doctor.checks.api._vllm_dropped import dropped
from verl_doctor.checks.api._vllm_renames import EARLIER, REMOVED
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, VllmUses
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import listed

SHOWN = 3
"""The number of names in a finding for several causes."""
# Names of libraries whose usual spelling differs from the module's.
_WRITTEN = {"ray": "Ray", "sglang": "SGLang", "vllm": "vLLM"}


def missing_imports(uses: ApiUses) -> Iterator[Finding]:
    """Report what verl imports and the library does not have, at least not there."""
    yield from _missing(
        uses, "import", _missing_import, "imports {} names from modules where", "does not have them"
    )


def _missing_import(group: list[ApiUse], uses: ApiUses) -> Finding:
    use = group[0]
    module, _, name = use.name.partition(":")
    if use.name in SUCCESSORS:
        return _replaced_import(group, module, name, uses)
    now = "" if use.name in REMOVED else use.now.rpartition(".")[0]
    what = f"{name} from {module}" if name else module
    is_moved = now and use.name not in EARLIER
    has = f"but {named(uses)} has it in {now}" if is_moved else f"which {named(uses)} does not have"
    where = f": {REMOVED[use.name]}" if use.name in REMOVED else ""
    if use.name in EARLIER:
        where = ": in older releases it is {1} in {0}".format(*EARLIER[use.name])
    slips = f"; its {use.handler} does not catch this" if use.handler else ""
    return finding(
        group,
        f"verl imports {what}, {has}{where}{slips}",
        found=use.reason,
        wanted=use.now if now else use.name.replace(":", "."),
        remedy=f"import {name} from {module}, and from {now} where that fails"
        if now
        else _other_release(uses),
        fix=_import_fix(group, now, uses),
    )


def _replaced_import(group: list[ApiUse], module: str, name: str, uses: ApiUses) -> Finding:
    then = SUCCESSORS[group[0].name]
    return finding(
        group,
        f"verl imports {name} from {module}, which {named(uses)} does not have: {then.name} replaced it",
        found=group[0].reason,
        wanted=f"{module}.{then.name}; {then.since} ({then.upstream}, as of {then.as_of})",
        remedy=f"import {then.name} where {name} is missing, or {_other_release(uses)}",
        fix="library-import",
    )


def _import_fix(group: list[ApiUse], now: str, uses: ApiUses) -> str | None:
    """The fix: `widen-except` if verl handles the name's absence, else an import from its present place."""
    if not isinstance(uses, VllmUses):
        return "library-import" if now else None
    if group[0].name in EARLIER:
        return "earlier-import"
    if all(use.handler for use in group):
        return "widen-except"
    return "moved-import" if now else None


def missing_attributes(uses: ApiUses) -> Iterator[Finding]:
    """Report the attributes that verl reads and the library does not have."""
    yield from _missing(uses, "attribute", _missing_attribute, "reads {} attributes that", "does not have")


def _missing_attribute(group: list[ApiUse], uses: ApiUses) -> Finding:
    use = group[0]
    owner, _, name = use.name.rpartition(".")
    short = owner.rpartition(".")[2] if owner.rpartition(".")[2][:1].isupper() else owner
    return finding(
        group,
        f"verl reads {short}.{name}, which {named(uses)} does not have"
        + (f": it is {use.now} now" if "." in use.now else ""),
        found=use.reason,
        wanted=use.now if "." in use.now else f"{name} (nearest: {use.now})" if use.now else name,
        remedy=f"use {use.now}" if "." in use.now else _other_release(uses),
    )


def _missing(
    uses: ApiUses, kind: str, finding_of: Callable[[list[ApiUse], ApiUses], Finding], does: str, lacks: str
) -> Iterator[Finding]:
    """Yield the findings about names of one kind.

    The message for several: "verl imports 3 names from modules where vLLM does not have them", where `does`
    holds {} for the number, and `lacks` ends the sentence.
    """
    library = named(uses)
    yield from judged(
        breaks(uses, kind),
        lambda use: use.name,
        lambda group: finding_of(group, uses),
        lambda every: (
            f"verl {does.format(len(every))} {library} {lacks}: {listed((use.last for use in every), SHOWN)}"
        ),
        _other_release(uses),
    )


def mismatched_calls(uses: ApiUses) -> Iterator[Finding]:
    """Report the calls with arguments that the library does not accept."""
    library = named(uses)
    yield from judged(
        breaks(uses, "keyword", "positional", "required", "meaning"),
        lambda use: f"{use.name} {use.kind}",
        lambda group: finding(
            group,
            f"{_mismatch(group[0])} in {library}",
            found=group[0].name,
            wanted=_wanted(group[0]),
            remedy=f"change the call, or {_other_release(uses)}",
            fix="dropped-argument" if isinstance(uses, VllmUses) and all(map(dropped, group)) else None,
        ),
        lambda every: (
            f"verl makes {len(every)} calls that {library} does not accept: "
            f"{listed(('{}({})'.format(*_parts(use)) for use in every), SHOWN)}"
        ),
        _other_release(uses),
    )


def _parts(use: ApiUse) -> tuple[str, str]:
    """The callee in its usual form, and the argument."""
    callee, _, argument = use.name.rstrip(")").partition("(")
    words = callee.split(".")
    return ".".join(words[-2:] if words[-2][:1].isupper() else words[-1:]), argument


def _mismatch(use: ApiUse) -> str:
    callee, argument = _parts(use)
    match use.kind:
        case "keyword":
            return f"{callee}() is called with the keyword {argument}, which it does not accept"
        case "positional":
            return f"{callee}() is called with {argument} positional arguments, more than it accepts"
        case "required":
            return f"{callee}() is called without {argument}, which it requires"
    return f"{callee}() is called with ({argument}), but its parameters are in another order"


def _wanted(use: ApiUse) -> str:
    if use.kind == "keyword":
        return f"{use.now}?" if use.now else "a keyword that it accepts"
    return f"({use.now})"


def named(uses: ApiUses) -> str:
    """The library and its version, as text for a sentence."""
    return f"{title(uses)} {uses.library.version}".rstrip()


def title(uses: ApiUses) -> str:
    """The library's name in its usual spelling."""
    return _WRITTEN.get(uses.library.module, uses.library.module)


def _other_release(uses: ApiUses) -> str:
    return f"use a {title(uses)} release that this verl supports"
