"""Whether a cluster has room for a placement group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from verl_doctor.checks.shared.ray import resources_text
from verl_doctor.toolkit.collectors.ray.clusters import RayCluster
from verl_doctor.toolkit.collectors.ray.state import RayGroup


def never_placed(group: RayGroup, cluster: RayCluster) -> str:
    """Why the group cannot be placed even on empty nodes; "" if it can."""
    nodes = [node.resources for node in cluster.alive]
    lacking = next((bundle for bundle in group.bundles if not any(fits(bundle, has) for has in nodes)), None)
    if lacking is not None:
        return f"no node has {resources_text(lacking)}"
    whole: Counter[str] = Counter()
    for bundle in group.bundles:
        whole.update(bundle)
    if group.strategy == "STRICT_PACK" and not any(fits(whole, has) for has in nodes):
        return f"it must be on one node, but no node has {resources_text(whole)}"
    if group.strategy == "STRICT_SPREAD" and len(group.bundles) > len(nodes):
        return (
            f"it needs {len(group.bundles)} nodes, but {len(nodes)} {'is' if len(nodes) == 1 else 'are'} "
            "alive"
        )
    together: Counter[str] = Counter()
    for has in nodes:
        together.update(has)
    if not fits(whole, together):
        return (
            f"it requests {bundles(group)}, but all nodes together have "
            f"{resources_text({name: together[name] for name in whole})}"
        )
    return "Ray reports it as infeasible" if group.waits_for == "INFEASIBLE" else ""


def fits(wanted: Mapping[str, float], has: Mapping[str, float]) -> bool:
    """Whether these resources cover the need."""
    return all(has.get(name, 0) >= amount for name, amount in wanted.items())


def bundles(group: RayGroup) -> str:
    """The bundles, with equal ones counted: "8 times 1 CPU"."""
    kinds = Counter(resources_text(bundle) for bundle in group.bundles)
    return " and ".join(f"{number} times {what}" if number > 1 else what for what, number in kinds.items())
