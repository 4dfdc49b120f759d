"""The parameters of a callable and the fields of a dataclass, as the examined sources define them."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.value import Bound, Probe, Value
from verl_doctor.toolkit.sources.python.classes import constructor
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.symbols import Class, Function, Signature


def signature_of_call(sources: Sources, callee: Value) -> tuple[Signature, str] | None:
    """Return the signature of this value when called, and the file that defines it."""
    match callee:
        case Class():
            return constructor(sources, callee)
        case Function(signature=signature, module=module) if signature is not None:
            return signature, _file(sources, module)
        case Bound(function=function, through_instance=through_instance) if function.signature is not None:
            bound = function.role == "classmethod" or (through_instance and function.role == "method")
            signature = function.signature.without_first() if bound else function.signature
            return signature, _file(sources, function.module)
    return None


def parameters_of(sources: Sources, callee: Value) -> Probe | None:
    """Return the parameter names that `inspect.signature(callee)` would show."""
    found = signature_of_call(sources, callee)
    if found is None:
        return None
    return Probe(frozenset(parameter.name for parameter in found[0].parameters), complete=True)


def fields_of(sources: Sources, owner: Class) -> Probe | None:
    """Return the names of a dataclass's fields."""
    found = constructor(sources, owner)
    if found is None or not owner.decorators:
        return None
    return Probe(frozenset(parameter.name for parameter in found[0].parameters), not found[0].more_positional)


def _file(sources: Sources, module: str) -> str:
    file = sources.file_of(module)
    return str(file.path) if file else ""
