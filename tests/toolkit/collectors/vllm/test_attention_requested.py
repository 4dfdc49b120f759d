"""Requests for an attention backend."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Setting, Word
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables, job_variables
from verl_doctor.toolkit.collectors.vllm.attention_requested import (
    AttentionAsked,
    RequestedBackend,
    attention_requested,
)
from verl_doctor.toolkit.facts import Absent, Unknown

NAME = "VLLM_ATTENTION_BACKEND"
ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm"
NO_LAUNCH = Absent("no launch script")
NOT_COMPOSED = Unknown("not composed")


def launch(*words: str, settings: tuple[Setting, ...] = ()) -> Launch:
    read = tuple(Word(text, "run.sh", 7) for text in words)
    return Launch(
        (("run.sh", "shell script"),), settings, Command("verl.trainer.main_ppo", read, "run.sh", 5)
    )


def requested(launched: Launch | Unknown = NO_LAUNCH, **shell: str) -> list[tuple[str, str, str]]:
    variables = job_variables.collect(Variables(shell), launched, NOT_COMPOSED)
    found = attention_requested.collect(variables, launched, NOT_COMPOSED)
    assert isinstance(found, (AttentionAsked, Absent))
    return [] if isinstance(found, Absent) else [(p.by, p.name, p.path) for p in found.places]


def test_no_requested_backend_is_absent() -> None:
    assert isinstance(
        attention_requested.collect(JobVariables({"VLLM_USE_V1": "1"}), NO_LAUNCH, NOT_COMPOSED), Absent
    )
    assert requested(launch("data.train_batch_size=8")) == []


def test_backend_requested_in_the_shell() -> None:
    assert requested(VLLM_ATTENTION_BACKEND="XFORMERS") == [(NAME, "XFORMERS", "")]


def test_script_overrides_the_shell() -> None:
    script = launch(settings=(Setting(NAME, "FLASH_ATTN", "run.sh", 2),))
    assert requested(script, VLLM_ATTENTION_BACKEND="XFORMERS") == [(NAME, "FLASH_ATTN", "run.sh")]
    unset = launch(settings=(Setting(NAME, None, "run.sh", 2, removed=True),))
    assert requested(unset, VLLM_ATTENTION_BACKEND="XFORMERS") == []


def test_options_are_read_in_each_spelling() -> None:
    assert requested(launch(f"+{ENGINE}.attention_backend=flash_attn")) == [
        ("attention_backend", "flash_attn", "run.sh")
    ]
    for written in (
        f"++{ENGINE}.attention_config.backend='FLASHINFER'",
        f"{ENGINE}.attention_config={{backend:FLASHINFER}}",
        f'{ENGINE}.attention_config={{flash_attn_version: 2, backend: "FLASHINFER"}}',
    ):
        assert requested(launch(written)) == [("attention_config.backend", "FLASHINFER", "run.sh")]
    for words in (("--attention-backend", "TRITON_ATTN"), ("--attention-backend=TRITON_ATTN",)):
        assert requested(launch(*words)) == [("attention_backend", "TRITON_ATTN", "run.sh")]


def test_null_and_another_rollout_request_no_backend() -> None:
    assert requested(launch(f"{ENGINE}.attention_backend=null")) == []
    other = launch("actor_rollout_ref.rollout.name=sglang", f"{ENGINE}.attention_backend=FLASHINFER")
    assert requested(other, VLLM_ATTENTION_BACKEND="XFORMERS") == []


def test_places_are_distinguished() -> None:
    places = AttentionAsked(
        (RequestedBackend(NAME, "A", NAME), RequestedBackend("attention_backend", "B", "x"))
    )
    assert [place.name for place in places.by(NAME)] == ["A"]
