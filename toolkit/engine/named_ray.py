"""The Ray clusters to report on: the cluster at --ray-address, or all that are found."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.facts import Unknown

_OTHERWISE = "use the address that its ray start --head printed, or remove --ray-address"
_CALLS = "--python names the environment whose Ray asks"


def queried_clusters(address: str, facts: Facts) -> RayClusters | Unknown:
    """Return the clusters.

    When one is named by address and does not respond, return why, with the next step.
    """
    clusters = facts.get(RayClusters)
    if not address:
        return clusters
    addresses = facts.get(RayAddresses)
    place = None if isinstance(addresses, Unknown) else addresses.of("--ray-address")
    if place is not None and place.trouble:
        return Unknown(f"no Ray answers at --ray-address: {place.trouble}; {_OTHERWISE}")
    if isinstance(clusters, Unknown):
        return Unknown(f"the Ray at {address} cannot be read: {clusters.reason}; {_CALLS}")
    named = clusters.at(place.address if place is not None else address)
    if named is None or named.refused:
        why = "it was not read" if named is None else named.refused
        step = f"verl-doctor check --ray-address {address} checks that"
        return Unknown(f"the Ray at {address} could not be read: {why}; {step}")
    return replace(clusters, clusters=(named,))
