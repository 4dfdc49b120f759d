"""Tensors joined and sharded by the released torch, as seen by the rehearsal's witness: bit for bit those of the model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support import rehearsal_environment

from verl_doctor.toolkit.commands.smoke.rehearsal.job import put_in_place

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEP = """
import json, os, sys, warnings
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from verl_doctor_rehearsal import witness
meeting, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=ranks)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
whole = [parameter.detach().clone() for parameter in model.parameters()]
warnings.simplefilter("ignore")
joined = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=False)
optimizer = torch.optim.SGD(joined.parameters(), lr=0.5)
seen = [tuple(piece.shape) for piece in witness._of_optimizer(optimizer)]
digests = witness._digests(witness._of_optimizer(optimizer))["exact"]
known = witness._digests(whole)["exact"]
before = digests
joined(torch.ones(1, 4)).sum().backward()
optimizer.step()
after = witness._digests(witness._of_optimizer(optimizer))["exact"]
print(json.dumps({"parameters": len(list(joined.parameters())), "shapes": seen, "digests": digests, "known": known, "after": after}))
torch.distributed.destroy_process_group()
"""


def step(place: Path, ranks: int) -> list[dict[str, list[str]]]:
    """What each of these processes reports of a model with six tensors, before and after a step."""
    environ = {**rehearsal_environment.variables(), "PYTHONPATH": str(place), "GLOO_SOCKET_IFNAME": "lo"}
    argv = [str(rehearsal_environment.python()), "-c", STEP, str(place / f"meeting-{ranks}")]
    children = [
        subprocess.Popen(
            [*argv, str(rank), str(ranks)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [child.communicate(timeout=300) for child in children]
    assert not any(child.returncode for child in children), outputs
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


def test_tensors_joined_by_fsdp_are_matched_to_those_of_the_model(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=False)
    (one,) = step(place, 1)
    assert one["parameters"] == 1
    assert one["digests"] == one["known"]
    assert all(old != new for old, new in zip(one["digests"], one["after"], strict=True))


def test_part_of_a_tensor_matches_no_tensor_of_the_model(tmp_path: Path) -> None:
    place = put_in_place(tmp_path, on_cpu=False)
    both = step(place, 2)
    whole = [set(result["digests"]) & set(result["known"]) for result in both]
    assert whole[0]
    assert whole[1]
    assert not whole[0] & whole[1]
    assert sum(map(len, whole)) < len(both[0]["known"])
