"""The places that set a variable about the network, in the form that the other rules about variables use."""

from __future__ import annotations

from verl_doctor.checks.shared.variables import Place
from verl_doctor.toolkit.collectors.connections.network_variables import NetworkVariables
from verl_doctor.toolkit.rule import Location


def places(name: str, variables: NetworkVariables) -> list[Place]:
    """The places that set the workers' value."""
    return [
        Place(
            name, given.value, Location(given.path, given.line or None) if given.path else None, given.where
        )
        for given in variables.of(name)
    ]
