"""Secrets in launch files are not kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launch.scripts import read, words_of


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    token = "hf_" + "a" * 34
    found = read(
        tmp_path,
        f"export HF_TOKEN={token}\nX={token}\n"
        f"python3 -m verl.trainer.main_ppo a=$X +b.api_key=abc --token {token} data.prompt_key=prompt c=hf:{token}",
    )
    assert token not in repr(found)
    assert "abc" not in repr(found)
    assert "data.prompt_key=prompt" in words_of(found)


@pytest.mark.parametrize(
    "word",
    [
        "+trainer.wandb_key=hunter2",
        "+trainer.db_pwd=hunter2",
        "+a.auth=hunter2",
        "+a.hf_pat=hunter2",
        "+a.signing_key=hunter2",
        "+a.jwt=hunter2",
        "+a.cookie=hunter2",
        "+a.passphrase=hunter2",
        "+a.tokens=hunter2",
        "+a.secrets.tracker=hunter2",
        "+data.api_key=hunter",
        "+a.b={hf_token:hunter2,n:1}",
        "--api-key hunter2",
        "--api_key hunter2",
        "--hf-token=hunter2",
        "--header 'Authorization: Token hunter2'",
    ],
)
def test_secrets_in_any_form_are_not_kept(word: str, tmp_path: Path) -> None:
    found = read(tmp_path, f"python3 -m verl.trainer.main_ppo a.b=1 {word} c.d=2\n")
    assert "hunter" not in repr(found)
    assert {"a.b=1", "c.d=2"} <= set(words_of(found))


@pytest.mark.parametrize(
    "word",
    [
        "data.prompt_key=prompt",
        "+data.my_question_key=question",
        "data.reward_fn_key=data_source",
        "data.image_key=images",
        "data.tokenizer=/models/tokenizer",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576",
        "actor_rollout_ref.rollout.max_num_batched_tokens=8192",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "algorithm.rollout_token_veto_threshold=1e-4",
        "actor_rollout_ref.rollout.continuous_token.enable=True",
        "global_profiler.profile_token_start=null",
        "+a.n_token=8",
        "--tokenizer=/models/tokenizer",
    ],
)
def test_harmless_words_that_resemble_secrets_are_kept(word: str, tmp_path: Path) -> None:
    assert words_of(read(tmp_path, f"python3 -m verl.trainer.main_ppo a.b=1 {word}\n")) == ["a.b=1", word]


def test_values_derived_from_a_secret_are_not_kept(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "MY_API_KEY=harmless-looking\nmax_token=8\n"
        "python3 -m verl.trainer.main_ppo a=$MY_API_KEY b=x${MY_API_KEY}y c=${MY_API_KEY:-d} n=$max_token",
    )
    assert words_of(found) == [None, None, None, "n=8"]
    assert "harmless-looking" not in repr(found)
