"""Parsing of Ray's messages by the GCS reader, where that needs no Ray."""

from __future__ import annotations

import io
import json
import os
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from verl_doctor.toolkit.probes.ray_state import Plain, gpus, variables


def resource(name: str, *indices: int) -> Any:
    return SimpleNamespace(
        name=name, resource_ids=[SimpleNamespace(index=number, quantity=0.5) for number in indices]
    )


def test_gpus_of_an_actor() -> None:
    given = [
        resource("CPU", 0),
        resource("GPU_group_ab", 3, 1),
        resource("GPU_group_1_ab", 1),
        resource("GPUS", 7),
    ]
    assert gpus(SimpleNamespace(resource_mapping=given)) == [1, 3]
    assert gpus(SimpleNamespace(resource_mapping=[resource("GPU", 2)])) == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("{}", {}),
        ("not JSON", {}),
        ('{"env_vars": null}', {}),
        (json.dumps({"env_vars": {"RANK": 1, "WANDB_API_KEY": "secret", "WG_PREFIX": "x" * 200}}), {"RANK": "1", "WG_PREFIX": "x" * 100}),
    ],
)  # fmt: skip
def test_only_process_group_variables_are_reported(text: str, expected: dict[str, str]) -> None:
    assert variables(SimpleNamespace(serialized_runtime_env=text)) == expected


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made by a pickle",)


def test_pickled_code_is_never_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Plain(io.BytesIO(pickle.dumps({"names": b"[]"}))).load() == {"names": b"[]"}
    with pytest.raises(pickle.UnpicklingError):
        Plain(io.BytesIO(pickle.dumps({"names": Evil()}))).load()
    assert not [*tmp_path.iterdir()]
