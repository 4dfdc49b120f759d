"""Which release has the member of a class, or the parameter of a function, that an exception names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.logs.raised import PACKAGES, remedy

from verl_doctor.toolkit.logs.releases import _members


@pytest.mark.parametrize(
    ("error", "places", "expected"),
    [
        (
            "AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'. Did you mean: 'num_generations'?",
            [("/w/LLaMA-Factory/src/llamafactory/train/grpo.py", "self.n = args.num_iterations")],
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


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_dora'",
        "AttributeError: 'LoraConfig' object has no attribute 'use_dora'",
    ],
)
def test_class_and_member_that_other_releases_have_are_those_of_the_package(error: str) -> None:
    told = remedy(error, ("/home/me/proj/train.py", "config = LoraConfig(use_dora=True).use_dora"))
    assert "pip install 'peft>=0.9'" in told
    assert "correct /home/me" not in told
    other = remedy(error.replace("use_dora", "of_mine"), ("/home/me/proj/train.py", "config.of_mine"))
    assert "correct /home/me/proj/train.py" in other


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'of_mine'",
        "AttributeError: 'LoraConfig' object has no attribute 'of_mine'",
    ],
)
def test_class_of_the_job_is_that_of_a_package_only_where_it_is_imported(error: str) -> None:
    place = ("/home/me/proj/train.py", "config = LoraConfig(of_mine=True).of_mine")
    own = remedy(error, place)
    assert "train.py:12" in own
    assert "none of the job" in own
    assert "pip install" not in own
    assert "none of the job" not in remedy(error, place, before="from peft import LoraConfig\n")


def test_objects_of_a_package_have_no_members_that_only_others_store_in_them() -> None:
    error = "AttributeError: 'Accelerator' object has no attribute 'optimizer'"
    assert "accelerate<" not in remedy(error, ("/job/train.py", "accelerator.optimizer.step()"))
    assert "optimizer" not in members_of_class("accelerate", "Accelerator")


def members_of_class(package: str, cls: str) -> Mapping[str, str]:
    return _members()[package].get(cls, {})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("AttributeError: module 'numpy' has no attribute 'float'.", "x = np.float(1)"),
        ("AttributeError: module 'numpy' has no attribute 'product'", "x = np.product(y)"),
        ("ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.10/collections/__init__.py)", "from collections import Mapping"),
        ("AttributeError: 'FieldInfo' object has no attribute 'required'", "x = field.required"),
    ],
)  # fmt: skip
def test_removed_name_in_a_file_of_the_job_is_corrected_there(error: str, code: str) -> None:
    own = remedy(error, ("/home/me/proj/reward.py", code))
    assert "correct /home/me/proj/reward.py:12" in own
    assert "in the traceback" not in own
    assert "install another release" not in own.partition("; ")[0]
    assert "in the traceback" in remedy(error, (f"{PACKAGES}/somepkg/a.py", code))


def test_tokenizer_that_nothing_shows_as_a_processor_is_only_supposed() -> None:
    error = "AttributeError: Qwen2TokenizerFast has no attribute tokenizer"
    place = (f"{PACKAGES}/vllm/inputs/registry.py", "tokenizer = processor.tokenizer")
    assert "if AutoProcessor.from_pretrained returned it" in remedy(error, place)
    shown = ("/job/load.py", "processor = AutoProcessor.from_pretrained(path)")
    assert "AutoProcessor returned a tokenizer" in remedy(error, shown, place)


@pytest.mark.parametrize("installs", ["Successfully installed trl-0.19.0", " + trl==0.19.0"])
def test_release_installed_last_counts(installs: str) -> None:
    error = "AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'"
    place = ("/w/LLaMA-Factory/src/llamafactory/train/grpo.py", "self.n = args.num_iterations")
    assert "trl>=0.16" not in remedy(error, place, before=f"trl==0.15.0\n{installs}\n")
    older = installs.replace("0.19.0", "0.14.0")
    assert "the log names trl 0.14.0" in remedy(error, place, before=f"trl==0.15.0\n{older}\n")


@pytest.mark.parametrize(
    ("path", "is_shadow"),
    [
        ("/usr/lib/pypy3.10/enum.py", False),
        ("/usr/lib/python310.zip/enum.pyc", False),
        ("/usr/lib/python3.10/enum.py", False),
        ("/home/me/proj/enum.py", True),
    ],
)
def test_only_a_file_of_the_job_hides_a_module_of_python(path: str, is_shadow: bool) -> None:
    error = f"ImportError: cannot import name 'StrEnum' from 'enum' ({path})"
    told = remedy(error, (f"{PACKAGES}/somepkg/a.py", "from enum import StrEnum"))
    assert ("it hides Python's own module" in told) is is_shadow
    assert ("3.11" in told) is not is_shadow


def test_misspelt_class_of_transformers_has_no_release() -> None:
    told = {
        name: remedy(
            f"ValueError: Could not find {name} neither in <module 'transformers.models.qwen2_vl' from '/x/__init__.py'> nor in <module 'transformers' from '/x/__init__.py'>!",
            (f"{PACKAGES}/transformers/models/auto/image_processing_auto.py", "raise ValueError("),
        )
        for name in ("Qwen2VLImageProcessor", "Qwen2VLImageProcesor")
    }
    assert "transformers>=4.45" in told["Qwen2VLImageProcessor"]
    assert "pip install" not in told["Qwen2VLImageProcesor"]
