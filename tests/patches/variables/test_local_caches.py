"""Caches in a folder on the node's own disk."""

from __future__ import annotations

from verl_doctor.checks.kernels.cache_on_network import cache_on_network
from verl_doctor.checks.kernels.cache_unusable import cache_unusable
from verl_doctor.checks.shared.caches import TRITON, VLLM, here
from verl_doctor.patches.variables.local_caches import local_caches
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.testing import run_check

NFS = {"kind": "nfs4", "mounted_on": "/home", "shared": True, "is_root": False}


def planned(check: Check, there: Caches) -> dict[str, str | None]:
    (finding,) = run_check(check, there).findings
    assert finding.fix == "local-caches"
    plan = local_caches.plan(finding, there)
    assert isinstance(plan, list)
    changes = [change for change in plan if isinstance(change, SetVariable)]
    assert all(change.node_only for change in changes)
    return {change.name: change.value for change in changes}


def test_only_caches_on_the_affected_file_system_move() -> None:
    there = here(TRITON(**NFS), VLLM())
    assert planned(cache_on_network, there) == {
        "TRITON_CACHE_DIR": "/scratch/verl-caches-me/triton",
        "VLLM_CACHE_ROOT": "/scratch/verl-caches-me/vllm",
    }
    assert planned(cache_unusable, here(TRITON(free=0), VLLM())) == {
        "TRITON_CACHE_DIR": "/scratch/verl-caches-me/triton"
    }


def test_no_local_disk_means_no_fix() -> None:
    there = here(VLLM(), local="")
    (finding,) = run_check(cache_on_network, there).findings
    assert finding.fix is None
    assert isinstance(local_caches.plan(finding, there), Refusal)
