"""`ray start` in launch files."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.ray_start import RayStart, RayStarts, ray_starts

SCRIPT = """#!/bin/bash
# ray start --num-cpus=3
srun --nodes=1 -w "$head" \\
    ray start --head --node-ip-address="$ip" --port=6379 \\
    --num-cpus "${SLURM_CPUS_PER_TASK}" --num-gpus=8 --block &
array start --temp-dir=/no
ssh node2 '/env/bin/ray start --address=10.0.0.1:6379 --temp-dir=/tmp/me'; echo --num-cpus
"""


def test_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    found = ray_starts.collect(Launch(((str(script), "shell script"),)))
    assert found == RayStarts(
        (
            RayStart(
                str(script),
                4,
                {
                    "head": "",
                    "node-ip-address": "$ip",
                    "port": "6379",
                    "num-cpus": "${SLURM_CPUS_PER_TASK}",
                    "num-gpus": "8",
                    "block": "",
                },
            ),
            RayStart(str(script), 7, {"address": "10.0.0.1:6379", "temp-dir": "/tmp/me"}),
        )
    )
    assert found.gives("temp-dir")
    assert not found.gives("object-store-memory")


def test_options_of_a_submission_are_separate_from_those_of_the_job(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "ray job submit --address='http://127.0.0.1:8265' \\\n  --working-dir . -- python3 x.py --address=no\n"
    )
    found = ray_starts.collect(Launch(((str(script), "shell script"),)))
    options = {"address": "http://127.0.0.1:8265", "working-dir": "."}
    assert found == RayStarts((), (RayStart(str(script), 1, options),))


def test_missing_script_has_no_ray_start(tmp_path: Path) -> None:
    assert ray_starts.collect(Launch(((str(tmp_path / "gone.sh"), "shell script"),))) == RayStarts()
