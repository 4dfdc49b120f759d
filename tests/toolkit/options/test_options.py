"""Shared options without effect are not offered by a command, and using one is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.options.value_types import Size

REFUSED = {
    "smoke": (
        (("--vllm", "."), "--vllm: smoke runs what the interpreter imports"),
        (("--transformers", "."), "--transformers: smoke runs what the interpreter imports"),
        (("--ray-address", "a:1"), "--ray-address: smoke starts its own Ray"),
    ),
    "script": (
        (("--tensordict", "."), "--tensordict: it does not affect verl's configuration"),
        (("--ray-address", "a:1"), "--ray-address: it does not affect verl's configuration"),
    ),
    "warmup": (
        (("--vllm", "."), "--vllm: warmup reads and starts what the interpreter imports"),
        (("--ray-address", "a:1"), "--ray-address requires --cluster"),
    ),
    "check": (
        (("--gpu-memory", "80GiB"), "--gpu-memory requires --deep"),
        (("--deep", "--gpu-memory", "much"), "'much' is not a size"),
    ),
    "watch": ((("--model", "."), "--model: watch examines disks and memory"),),
}


@pytest.mark.parametrize("command", REFUSED)
def test_option_without_effect_is_refused_in_one_sentence(command: str, here: Doctor, tmp_path: Path) -> None:
    for words, sentence in REFUSED[command]:
        done = here(command, *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "offered", "left_out"),
    [
        (
            "smoke",
            "--verl --model --data --python",
            "--tree --vllm --transformers --sglang --ray --ray-address",
        ),
        ("script", "--verl --tree --model --data", "--vllm --transformers --sglang --ray --ray-address"),
        ("warmup", "--verl --model --ray-address", "--vllm --transformers --sglang --ray"),
        ("check", "--gpu-memory --deep", ""),
        ("watch", "--verl --path", "--vllm --sglang --ray --ray-address --model --data"),
    ],
)
def test_help_lists_only_options_with_an_effect(
    command: str, offered: str, left_out: str, here: Doctor, tmp_path: Path
) -> None:
    words = set(here(command, "--help", cwd=tmp_path).stdout.split())
    assert words >= set(offered.split())
    assert not words & set(left_out.split())


@pytest.mark.parametrize(
    ("written", "found"),
    [("80GiB", 80 << 30), ("80G", 80 << 30), ("81559 MiB", 81559 << 20), ("1.5t", 3 << 39)],
)
def test_amount_is_read_in_binary_units(written: str, found: int) -> None:
    assert Size().convert(written, None, None) == found


def test_codes_of_repeated_options_add_up(here: Doctor, tmp_path: Path) -> None:
    done = here("check", "--select", "RAY", "--select", "CFG101,RAY", "--ignore", "RAY101", cwd=tmp_path)
    assert "--select RAY,CFG101 --ignore RAY101" in done.stdout
