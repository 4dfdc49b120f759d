"""Which release has the member of a class, or the parameter of a function, that an exception names."""

from __future__ import annotations

from io import BytesIO

import pytest

from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.document import remedy_of
from verl_doctor.toolkit.logs.excerpt import excerpt

PACKAGES = "/venv/lib/python3.11/site-packages"


def remedy(error: str, *places: tuple[str, str], before: str = "") -> str:
    """The remedy for an exception raised at these places, the deepest last, each with its line."""
    frames = "".join(f'  File "{path}", line 12, in run\n    {code}\n' for path, code in places)
    log = f"{before}Traceback (most recent call last):\n{frames}{error}\n"
    first = read(excerpt(BytesIO(log.encode()).read).lines, "run.log").first
    assert first is not None
    return remedy_of(first)


@pytest.mark.parametrize(
    ("error", "places", "expected"),
    [
        (
            "AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'. Did you mean: 'num_generations'?",
            [("/job/my_trainer.py", "self.n = args.num_iterations")],
            "pip install 'trl>=0.16'",
        ),
        (
            "AttributeError: 'FastGRPOTrainer' object has no attribute 'num_iterations'",
            [
                ("/job/my_trainer.py", "trainer.train()"),
                (f"{PACKAGES}/trl/trainer/grpo_trainer.py", "n = self.num_iterations"),
            ],
            "pip install 'trl<0.16'",
        ),
        (
            "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_dora'",
            [("/w/LLaMA-Factory/src/llamafactory/model/adapter.py", "config = LoraConfig(")],
            "pip install 'peft>=0.9'",
        ),
        (
            "TypeError: flash_attn_varlen_func() got an unexpected keyword argument 'deterministic'",
            [
                (
                    f"{PACKAGES}/transformers/modeling_flash_attention_utils.py",
                    "attn_output = flash_attn_varlen_func(",
                )
            ],
            "pip install 'flash-attn>=2.4'",
        ),
    ],
)
def test_release_of_a_member(error: str, places: list[tuple[str, str]], expected: str) -> None:
    assert expected in remedy(error, *places)


def test_release_that_the_log_shows_is_not_proposed() -> None:
    error = "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_dora'"
    place = ("/w/LLaMA-Factory/src/llamafactory/model/adapter.py", "config = LoraConfig(")
    assert "peft>=0.9" not in remedy(error, place, before="peft==0.13.2\n")
    assert "(the log names peft 0.7.1): pip install 'peft>=0.9'" in remedy(
        error, place, before="peft==0.7.1\n"
    )


def test_class_of_the_job_with_a_known_name_needs_its_package_in_the_traceback() -> None:
    error = "AttributeError: 'PromptTuningConfig' object has no attribute 'revision'"
    assert "peft" not in remedy(error, ("/job/config.py", "return self.revision"))


def test_attribute_that_a_package_misses_in_its_own_class_is_no_matter_of_releases() -> None:
    error = "AttributeError: 'GRPOTrainer' object has no attribute 'num_iterations'"
    place = (f"{PACKAGES}/trl/trainer/grpo_trainer.py", "n = self.num_iterations")
    assert "pip install 'trl>=0.16'" not in remedy(error, place)


def test_configuration_of_another_model() -> None:
    told = remedy(
        "AttributeError: 'Qwen2_5_VLVisionConfig' object has no attribute 'embed_dim'",
        ("/job/load.py", "model = Qwen2VLForConditionalGeneration.from_pretrained(path)"),
        (f"{PACKAGES}/transformers/models/qwen2_vl/modeling_qwen2_vl.py", "embed_dim=config.embed_dim,"),
        (f"{PACKAGES}/transformers/configuration_utils.py", "return super().__getattribute__(key)"),
    )
    assert "Qwen2_5_VLForConditionalGeneration" in told
    own = remedy(
        "AttributeError: 'Qwen2VLVisionConfig' object has no attribute 'embed_dims'",
        (f"{PACKAGES}/transformers/models/qwen2_vl/modeling_qwen2_vl.py", "embed_dim=config.embed_dims,"),
    )
    assert "another model" not in own


def test_tokenizer_in_place_of_a_processor() -> None:
    told = remedy(
        "AttributeError: Qwen2TokenizerFast has no attribute tokenizer",
        ("/job/load.py", "processor(text)"),
        (f"{PACKAGES}/vllm/inputs/registry.py", "tokenizer = processor.tokenizer"),
    )
    assert "install a newer transformers" in told


def test_required_release_names_the_distribution() -> None:
    told = remedy(
        "ValueError: FSDP requires PyTorch >= 2.1.0",
        ("/job/train.py", "train()"),
        (f"{PACKAGES}/accelerate/accelerator.py", "raise ValueError(message)"),
    )
    assert "pip install 'torch>=2.1.0'" in told


def test_plugin_and_engine_of_different_releases() -> None:
    told = remedy(
        "AttributeError: WAITING_FOR_FSM",
        (
            "/w/vllm-ascend/vllm_ascend/core/scheduler.py",
            "if request.status == RequestStatus.WAITING_FOR_FSM:",
        ),
    )
    assert "releases of vllm_ascend and vllm must be equal" in told
