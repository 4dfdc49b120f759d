"""Advice on shapes that do not fit."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.shapes import mismatched

_FORM = "size mismatch for {}: copying a param with shape torch.Size([{}]) from checkpoint, the shape in current model is torch.Size([{}])."


@pytest.mark.parametrize(
    ("name", "stored", "built", "expected"),
    [
        ("model.embed_tokens.weight", "128260, 4096", "128256, 4096", "resize_token_embeddings(128260)"),
        ("embeddings.0.weight", "2962, 16", "2963, 16", "weights and config.json are of different models"),
        ("model.layers.0.mlp.up_proj.weight", "0", "1024, 64", "partitioned it: gather the weights"),
        ("model.layers.0.mlp.up_proj.weight", "512, 64", "1024, 64", "sharded over 2 ranks"),
        (
            "model.layers.0.mlp.up_proj.weight",
            "1000, 48",
            "1024, 64",
            "weights and config.json are of different models",
        ),
        ("lm_head.weight", "100, 48", "100, 64", "weights and config.json are of different models"),
        (
            "layers.2.q.lora_A.default.weight",
            "16, 4096",
            "8, 4096",
            "saved with rank 16 and is loaded with rank 8",
        ),
        ("layers.2.q.lora_B.default.weight", "4096, 16", "4096, 8", "set r in its adapter_config.json"),
    ],
)
def test_shapes_tell_what_differs(name: str, stored: str, built: str, expected: str) -> None:
    assert expected in mismatched(_FORM.format(name, stored, built), "load_state_dict")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "The size of tensor a (3072) must match the size of tensor b (6144) at non-singleton dimension 1",
            "a factor of 2",
        ),
        (
            "The expanded size of the tensor (264) must match the existing size (576) at non-singleton dimension 0",
            "tensor_model_parallel_size=1",
        ),
    ],
)
def test_sizes_count_where_weights_are_loaded(message: str, expected: str) -> None:
    assert expected in mismatched(message, "load_weights weight_loader")
    assert mismatched(message, "forward") == ""


def test_other_messages_have_no_advice() -> None:
    assert mismatched("it does not fit", "load_weights") == ""
