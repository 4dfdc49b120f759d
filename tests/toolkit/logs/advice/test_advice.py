"""Remedies for exceptions without a detailed signature, computed from the names in them."""

from __future__ import annotations

import pytest
from support.logs.raised import PACKAGES, first_cause, remedy

from verl_doctor.toolkit.logs.causes import remedy_of


@pytest.mark.parametrize(
    ("error", "places", "expected"),
    [
        (
            "ModuleNotFoundError: No module named 'timm'",
            ["/job/train.py", f"{PACKAGES}/transformers/models/a.py"],
            ["pip install timm", "transformers imports it"],
        ),
        (
            "ModuleNotFoundError: No module named 'cv2'",
            [f"{PACKAGES}/sampler/core.py"],
            ["pip install opencv-python-headless"],
        ),
        (
            "ModuleNotFoundError: No module named 'peft.tuners.newer'",
            [f"{PACKAGES}/art/server.py"],
            ["the installed peft has no module peft.tuners.newer", "art"],
        ),
        (
            "ModuleNotFoundError: No module named 'fused_things'",
            ["/src/vllm/model_executor/tuned.py"],
            ["the package that provides the module fused_things"],
        ),
        (
            "ModuleNotFoundError: No module named 'my_rewards'",
            ["/job/train.py"],
            ["PYTHONPATH", "train.py:12 imports my_rewards"],
        ),
        (
            f"ImportError: cannot import name 'Old' from 'peft.tuners' ({PACKAGES}/peft/tuners/__init__.py)",
            [f"{PACKAGES}/art/server.py"],
            ["the installed peft has no Old, which art imports from peft.tuners", "pip show art"],
        ),
        (
            "TypeError: Trainer.__init__() got an unexpected keyword argument 'processing'",
            ["/job/a.py", f"{PACKAGES}/trl/trainer/grpo_trainer.py"],
            [
                "trl calls Trainer.__init__ of transformers",
                "Install the transformers that trl requires",
            ],
        ),
        (
            "TypeError: MyTrainer.compute_loss() got an unexpected keyword argument 'num_items'",
            ["/job/a.py", f"{PACKAGES}/transformers/trainer.py"],
            ["Give the function a parameter num_items", "transformers"],
        ),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'top_q'",
            ["/job/a.py"],
            ["correct the call at a.py:12", "install a trl that accepts it"],
        ),
        (
            "AttributeError: module 'datasets' has no attribute 'load_it'",
            [f"{PACKAGES}/art/data.py"],
            ["has no load_it, which art uses", "print(datasets.__file__)"],
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/missing.idx'",
            [f"{PACKAGES}/art/data.py"],
            ["/data/missing.idx does not exist"],
        ),
        (
            "KeyError: 'reward_style'",
            [f"{PACKAGES}/verl/workers/reward_manager/naive.py"],
            ["the rows of the data have no reward_style", "data.train_files"],
        ),
        (
            "AttributeError: 'LLMEngine' object has no attribute 'step_rpc'",
            ["/job/a.py", f"{PACKAGES}/openrlhf/cli.py", f"{PACKAGES}/torch/hub.py", f"{PACKAGES}/vllm/llm.py"],
            ["the code of vllm fails at llm.py:12, called by openrlhf", "whether openrlhf and vllm fit (pip check, pip show openrlhf)"],
        ),
        (
            "AttributeError: Qwen2Tokenizer has no attribute backend",
            [f"{PACKAGES}/openrlhf/cli.py", f'{PACKAGES}/transformers/base.py", line 3, in __getattr__\n  File "{PACKAGES}/transformers/base.py'],
            ["called by openrlhf", "transformers"],
        ),
        ("AssertionError", ["/job/a.py", f"{PACKAGES}/vllm/scheduler.py"], ["a check in vllm fails at scheduler.py:12", "call()", "called by a.py:12", "return to the releases before it"]),
        ("KeyError: 'weight_version'", [f"{PACKAGES}/sglang/serving.py"], ["what sglang reads at serving.py:12 has no 'weight_version': call()"]),
        ("TypeError: list indices must be integers or slices, not str", [f"{PACKAGES}/art/core.py"], ["the input on which art fails at core.py:12"]),
        ("AttributeError: 'NoneType' object has no attribute 'cpu'", [f"{PACKAGES}/sglang/batch.py"], ["a value that sglang needs at batch.py:12 was never set: call()"]),
        (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{PACKAGES}/art/version/version'",
            [f"{PACKAGES}/art/__init__.py"],
            ["the installation of art is incomplete: it lacks art/version/version"],
        ),
        (
            "RuntimeError: Failed to import trl.trainer.grpo_trainer because of the following error (look up to see its traceback):\nNo module named 'mergekit'",
            [f"{PACKAGES}/transformers/utils/import_utils.py"],
            ["install the package that provides the module mergekit", "transformers imports it"],
        ),
        (
            "ImportError: peft>=0.11,<0.12 is required for a normal functioning of this module, but found peft==0.13.\nTo fix: pip install peft>=0.11,<0.12",
            ["/job/a.py", f"{PACKAGES}/transformers/utils/versions.py"],
            ["pip install 'peft>=0.11,<0.12', with the job's Python"],
        ),
        (
            "pydantic_core._pydantic_core.ValidationError: 2 validation errors for ParallelConfig\nranks\n  Input should be a valid integer [type=int_type, input_value='two', input_type=str]\nold_name\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]",
            [f"{PACKAGES}/vllm/config.py"],
            ["set ranks of ParallelConfig to what it accepts (Input should be a valid integer), not 'two'", "remove old_name, which ParallelConfig of this release does not have"],
        ),
        (
            "ValueError: Fused sampling is not compatible with speculative decoding.",
            [f"{PACKAGES}/vllm/config.py"],
            ["change what does not go together, as the message states: Fused sampling, or speculative decoding"],
        ),
        (
            "RuntimeError: The cache is stale. Set the variable X_CACHE to a new folder. And please make sure that it is empty.",
            [f"{PACKAGES}/art/data.py"],
            ["Set the variable X_CACHE to a new folder. And please make sure that it is empty"],
        ),
        (
            "AttributeError: 'DynamicCache' object has no attribute 'rewound'",
            ["/home/user/.cache/huggingface/modules/transformers_modules/m/modeling_m.py"],
            ["the model's own code (trust_remote_code)", "transformers_version"],
        ),
        ("ValueError: max_num_seqs must be positive", [f"{PACKAGES}/verl/a.py", f"{PACKAGES}/vllm/config.py"], ["in verl, max_num_seqs is actor_rollout_ref.rollout.max_num_seqs"]),
        ("ImportError: cannot import name 'OmegaConf' from 'omegaconf' (unknown location)", [f"{PACKAGES}/art/a.py"], ["only a folder called omegaconf", "pip install --force-reinstall omegaconf"]),
        ("ModuleNotFoundError: No module named 'ray._private.node'", [f"{PACKAGES}/ray/_private/worker.py"], ["its own module ray._private.node is missing", "--force-reinstall --no-cache-dir ray"]),
        ("ImportError: vLLM is not installed. Please run at least once with X_REBUILD=true set.", [f"{PACKAGES}/art/a.py"], ["run at least once with X_REBUILD=true set"]),
        ("TypeError: EngineArgs.__init__() got an unexpected keyword argument 'extension'", ["/job/a.py", f"{PACKAGES}/trl/serve.py", f"{PACKAGES}/vllm/llm.py"], ["install the vllm that trl requires (pip install 'trl[vllm]'", "trl passes EngineArgs.__init__ extension"]),
        ("AttributeError: `AcceleratorState` object has no attribute `plugin`. It was reset.", [f"{PACKAGES}/trl/a.py"], ["AcceleratorState of the installed accelerate has no plugin, which trl uses", "install the accelerate"]),
        ("AssertionError: Guessing not yet supported for the X backend.", [f"{PACKAGES}/vllm/a.py"], ["does not go together, as the message states: Guessing, or the X backend"]),
        ("NameError: name 'is_torch_version' is not defined", [f"{PACKAGES}/transformers/trainer.py", "<string>"], ["generated in place of that of transformers", "unsloth_zoo"]),
        ("KeyError: 'key \"rollout_log_probs\" not found in TensorDict with keys [1]'", [f"{PACKAGES}/verl/a.py", f"{PACKAGES}/tensordict/_td.py"], ["the batch has no rollout_log_probs", "set rollout.calculate_log_probs=True"]),
        ("AssertionError: compilation of both is not supported", [f"{PACKAGES}/sglang/args.py"], ["do without what is not supported, as the message states (compilation of both is not supported)", "the documentation of sglang says which release supports it"]),
        ("ValueError: max_num_seqs (7) is odd", [f"{PACKAGES}/verl/a.py", f"{PACKAGES}/vllm/config.py"], ["correct actor_rollout_ref.rollout.max_num_seqs, which sets max_num_seqs in verl"]),
        ("ImportError: the package for FlashAttention2 doesn't seem to be installed.", [f"{PACKAGES}/transformers/modeling_utils.py"], ["pip install flash-attn"]),
        ("ImportError: cannot import name 'GRPOConfig' from 'trl' (/x/trl/__init__.py)", ["/job/a.py"], ["Install the trl that a.py:12 was made for, pip install 'trl>=0.14'"]),
        ("ModuleNotFoundError: No module named 'cupy'", [f"{PACKAGES}/verl/a.py"], ["pip install cupy-cuda12x", "on AMD GPUs build it"]),
        ("ImportError: Apex was not found. Please see the README.", [f"{PACKAGES}/nemo/a.py"], ["install the package that provides the module apex", "nemo requests it"]),
    ],
)  # fmt: skip
def test_remedy_names_the_objects_of_the_exception(
    error: str, places: list[str], expected: list[str]
) -> None:
    advice = remedy(error, *places)
    assert [words for words in expected if words not in advice] == [], advice


def test_release_shown_in_the_log_is_named() -> None:
    error = "ImportError: cannot import name 'Old' from 'peft.tuners' (/x/peft/tuners/__init__.py)"
    assert "the installed peft 0.14.0 has no Old" in remedy(
        error, f"{PACKAGES}/art/server.py", before="  + peft==0.14.0\n"
    )


@pytest.mark.parametrize(
    ("error", "package"),
    [("ModuleNotFoundError: No module named 'timm'", "transformers"), ("ModuleNotFoundError: No module named 'wandb'", "trl")],
)  # fmt: skip
def test_package_to_install_is_named_once(error: str, package: str) -> None:
    advice = remedy(error, f"{PACKAGES}/{package}/a.py")
    assert advice.count("install ") == 1, advice


def test_assertion_with_a_message_explains_itself() -> None:
    advice = remedy("AssertionError: seven is odd", f"{PACKAGES}/vllm/scheduler.py")
    assert advice.startswith("the exception states what is wrong")


def test_exception_without_names_gets_the_general_remedy() -> None:
    advice = remedy("RuntimeError: it does not work", f"{PACKAGES}/art/data.py")
    assert advice.startswith("compare what the exception states with what the job gives art")
    assert "newer release" not in advice
    assert "if it began with an upgrade, return to the releases before it" in advice


def test_package_logged_as_missing_is_to_be_installed() -> None:
    advice = remedy(
        "NameError: name 'fast_saver' is not defined",
        "/job/run.py",
        f"{PACKAGES}/sglang/srt/adapter.py",
        before="saving is enabled, but fast-saver is not installed. Please install it.\n",
    )
    assert advice.startswith("pip install fast-saver")
    assert "sglang uses it" in advice


@pytest.mark.parametrize(
    ("message", "requirement"),
    [
        (
            "Exception: quick_kernels with minimum required version 0.2.5 is not installed.",
            "quick_kernels>=0.2.5",
        ),
        (
            "ImportError: ragged>=0.21,<0.22 is required for this, but found ragged==0.22.0.",
            "ragged>=0.21,<0.22",
        ),
        ("RuntimeError: This requires ragged >= 1.2.", "ragged>=1.2"),
        ("NotImplementedError: seed requires Ragged version `ragged` >= 1.1.0.", "ragged>=1.1.0"),
    ],
)
def test_release_required_by_a_message_is_to_be_installed(message: str, requirement: str) -> None:
    assert f"pip install '{requirement}'" in remedy(message, f"{PACKAGES}/vllm/envs.py")


def test_recipe_of_another_verl_release_is_recognised() -> None:
    error = "AttributeError: 'Loop' object has no attribute 'tools'"
    assert "another release of verl" in remedy(error, "/src/verl/recipe/agents/loop.py")
    assert "another release of verl" not in remedy(error, "/job/loop.py")


def test_tensor_sizes_are_not_a_demand() -> None:
    advice = remedy(
        "RuntimeError: The size of tensor a (8) must match the size of tensor b (9) at non-singleton dimension 0",
        "/src/Megatron-LM/tools/checkpoint/schema_base.py",
    )
    assert "follow the message" not in advice


def test_python_suggestion_of_a_similar_name_is_not_a_demand() -> None:
    advice = remedy("AttributeError: no such class: Talk. Did you mean: '_return_value'?", "/job/a.py")
    assert "_return_value" not in advice


def test_variable_requested_by_a_message_must_reach_the_workers() -> None:
    advice = remedy("ValueError: Please set VLLM_FAST_PATH=1 for this model.", f"{PACKAGES}/vllm/engine.py")
    assert "set VLLM_FAST_PATH before ray start" in advice
    assert "before ray start" not in remedy("ValueError: Please set max_len.", f"{PACKAGES}/vllm/engine.py")


def test_supported_values_are_suggested() -> None:
    advice = remedy(
        "ValueError: torch.bfloat16 is not supported for awq. Supported dtypes: [torch.float16]",
        f"{PACKAGES}/vllm/loader.py",
    )
    assert "Supported dtypes: [torch.float16]" in advice


@pytest.mark.parametrize(
    ("places", "code", "error", "expected"),
    [
        (["/job/collate.py"], 'feature["chosen"]', "KeyError: 'chosen'", "give every row chosen"),
        (["/job/collate.py", f"{PACKAGES}/pandas/core/indexes/base.py"], "raise KeyError(key) from err", "KeyError: 1812", "Dataset.from_pandas"),
        (
            ["/src/verl/verl/utils/dataset/sft_dataset.py", f"{PACKAGES}/pandas/core/frame.py"],
            "self.dataframe[self.question_key]",
            "KeyError: 'question'",
            "set data.question_key to a column",
        ),
    ],
)  # fmt: skip
def test_key_missing_from_the_data_is_named_with_its_reader(
    places: list[str], code: str, error: str, expected: str
) -> None:
    frames = "".join(f'  File "{place}", line 12, in run\n    {code}\n' for place in places)
    log = f"Traceback (most recent call last):\n{frames}{error}\n"
    assert expected in remedy_of(first_cause(log))


def test_module_of_a_source_tree_may_be_a_submodule() -> None:
    error = "ModuleNotFoundError: No module named 'own_part'"
    assert "git submodule update" in remedy(error, "/src/RL/nemo_rl/worker.py")
    assert "git submodule update" not in remedy(error, f"{PACKAGES}/nemo_rl/worker.py")


def test_assertion_on_settings_states_a_condition() -> None:
    code = "assert config.data.train_batch_size >= config.actor_rollout_ref.actor.ppo_mini_batch_size"
    log = f'Traceback (most recent call last):\n  File "/src/verl/verl/trainer/ppo/ray_trainer.py", line 9, in _validate\n    {code}\nAssertionError\n'
    first = first_cause(log)
    assert first.blame is not None
    assert first.blame.settings == ("data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size")
    assert "data.train_batch_size must be at least actor_rollout_ref.actor.ppo_mini_batch_size" in remedy_of(
        first
    )
    assert "newer release" not in remedy_of(first)


def test_verl_process_without_a_gpu_is_named() -> None:
    log = "(TaskRunner pid=3) Traceback (most recent call last):\n" + "".join(
        f'(TaskRunner pid=3)   File "{place}", line 12, in run\n'
        for place in ("/job/rewards.py", f"{PACKAGES}/torch/cuda/__init__.py")
    )
    log += "(TaskRunner pid=3) RuntimeError: No CUDA GPUs are available\n"
    first = first_cause(log)
    assert "do not use a GPU in TaskRunner" in remedy_of(first)


def test_known_remedy_replaces_the_computed_one() -> None:
    advice = remedy(
        "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'", "/job/train.py"
    )
    assert advice.startswith("pass processing_class=tokenizer")
    assert "correct the call" not in advice


def test_value_missing_from_a_table_is_named() -> None:
    log = f'Traceback (most recent call last):\n  File "{PACKAGES}/swift/loss.py", line 9, in get\n    return LOSS_MAPPING[loss_type]["func"]\nKeyError: \'grpo\'\n'
    first = first_cause(log)
    assert "choose a loss_type that swift has in LOSS_MAPPING: grpo is not among them" in remedy_of(first)


def test_crashed_package_is_named() -> None:
    log = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f2 (most recent call first):\n"
        f'  File "{PACKAGES}/aiter/ops/sampling.py", line 60 in sample\n  File "{PACKAGES}/vllm/sampler.py", line 3 in run\n'
    )
    first = first_cause(log)
    assert "it crashed in aiter (sampling.py:60, in sample)" in remedy_of(first)
    graphs = log.replace(f"{PACKAGES}/aiter/ops/sampling.py", f"{PACKAGES}/torch/cuda/graphs.py")
    assert "while a CUDA graph was captured (graphs.py:60)" in remedy_of(first_cause(graphs))


def test_crashed_thread_names_the_package_and_not_another_thread() -> None:
    other = (
        f'Thread 0x00007f1 (most recent call first):\n  File "{PACKAGES}/tqdm/_monitor.py", line 60 in run\n'
    )
    crashed = f'Current thread 0x00007f2 (most recent call first):\n  File "{PACKAGES}/aiter/ops/sampling.py", line 60 in sample\n'
    for threads, expected in ((f"{other}\n{crashed}", "it crashed in aiter"), (other, "")):
        log = f"Fatal Python error: Segmentation fault\n\n{threads}"
        first = first_cause(log)
        assert expected in remedy_of(first)
        assert "tqdm" not in remedy_of(first)


def test_crash_in_a_call_of_nccl_is_not_laid_on_the_package_that_calls_it() -> None:
    log = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f2 (most recent call first):\n"
        f'  File "{PACKAGES}/vllm/distributed/device_communicators/pynccl_wrapper.py", line 300 in ncclAllReduce\n'
        f'  File "{PACKAGES}/vllm/distributed/device_communicators/pynccl.py", line 120 in all_reduce\n'
    )
    first = first_cause(log)
    assert "it crashed in NCCL (ncclAllReduce, which vllm calls at pynccl_wrapper.py:300)" in remedy_of(first)
    assert "install vllm again" not in remedy_of(first)


def test_library_source_is_not_a_file_of_the_job() -> None:
    advice = remedy("RuntimeError: Error at /src/kernels/gpu/pool.cu:5: it broke", f"{PACKAGES}/art/a.py")
    assert "look at" not in advice


@pytest.mark.parametrize(
    ("error", "place", "code", "expected"),
    [
        ("RuntimeError: Assertion error (layout.hpp:60): Unknown recipe", "vllm/utils/deep_gemm.py", "impl()", "or do without the part that failed: VLLM_USE_DEEP_GEMM=0"),
        ("TypeError: plan() got an unexpected keyword argument 'kv_data_type'", "vllm/attention/backends/flashinfer.py", "plan()", "vllm calls plan of flashinfer with arguments that it does not accept"),
        ("UnboundLocalError: local variable 'rollout' referenced before assignment", "verl/workers/a.py", "return rollout", "actor_rollout_ref.rollout.name has a value that verl does not handle there"),
        ("UnboundLocalError: cannot access local variable 'x' where it is not associated with a value", "art/a.py", "return x", "no branch at a.py:12 sets x"),
        ("TypeError: run() got multiple values for argument 'output'", "verl/loop.py", "run(o, **row)", "run gets output twice: if a column of the data"),
        ("TypeError: '<=' not supported between instances of 'NoneType' and 'str'", "verl/a.py", 'if package_version <= "0.6.3":', "package_version is empty: the package whose release a.py:12 compares is not installed"),
        ("omegaconf.errors.ConfigAttributeError: Key 'grouping' is not in struct\n    full_key: data.grouping\n    object_type=dict", "verl/reward.py", "config.data.grouping", "the code at reward.py:12 uses data.grouping, which the configuration of this job lacks"),
        ("FileNotFoundError: Config file /c/global_step_50/actor/fsdp_config.json does not exist.", "verl/merger.py", "raise", "to fsdp_config.json in the checkpoint's actor folder"),
            ("FileNotFoundError: File /c/global_step_50/actor/model_world_size_8_rank_0.pt does not exist.", "verl/merger.py", "raise", "the checkpoint /c/global_step_50 is incomplete"),
            ("FileNotFoundError: File c/global_step_50/actor/model_world_size_8_rank_0.pt does not exist.", "verl/merger.py", "raise", "the checkpoint c/global_step_50 is incomplete"),
        ("KeyError: \"None of [Index(['question'], dtype='object')] are in the [columns]\"", "verl/sft.py", "self.prompts = self.dataframe[self.prompt_key]", "set data.prompt_key to a column of the data: it has no question"),
        ("ValueError: too many values to unpack (expected 4)", "art/a.py", "q, index, lengths, longest = unpad_input(q, mask)", "unpad_input of the installed flash_attn returns more than 4 values, which a.py:12 does not expect"),
        ("ValueError: not enough values to unpack (expected 3, got 2)", "art/a.py", "a, b, c = self.model.run(q)", "run returns fewer than 3 values"),
        ("AttributeError: 'tokenizers.Encoding' object has no attribute 'copy'", "verl/a.py", "ids.copy()", "pip install 'transformers<5'"),
        ("AssertionError: When overlap_grad_reduce is True, config.no_sync_func must be None", "megatron/a.py", "assert x", "or set overlap_grad_reduce=False"),
        ("ValueError: Invalid backend: None, expected sglang or vllm", "areal/a.py", "raise ValueError(backend)", "set the backend, which is empty: sglang or vllm"),
        ("KeyError: 'timing'", "verl/trainer/ppo/ray_trainer.py", 'raw.update(batch.meta_info["timing"])', "the step before ray_trainer.py:12 does not return timing in this mode of the rollout"),
        ("ImportError: /home/u/.cache/torch_extensions/py312_cu124/xgrammar/xgrammar.so: cannot open shared object file: No such file or directory", "xgrammar/a.py", "load()", "remove /home/u/.cache/torch_extensions/py312_cu124/xgrammar/, install ninja"),
        ("FileExistsError: [Errno 17] File exists: '/mnt/ckpt/model'", "art/a.py", "os.makedirs(path)", "/mnt/ckpt/model exists already: an earlier run left it"),
        ("AssertionError: a state that was unheard of", "vllm/a.py", "assert state", "vllm checks at a.py:12 that state must be set; find what sets these values"),
    ],
)  # fmt: skip
def test_cause_shown_in_an_exception_is_used(error: str, place: str, code: str, expected: str) -> None:
    log = f'Traceback (most recent call last):\n  File "{PACKAGES}/{place}", line 12, in run\n    {code}\n{error}\n'
    first = first_cause(log)
    assert expected in remedy_of(first)


def test_argument_not_passed_between_packages_suggests_an_upgrade() -> None:
    error = "AssertionError: vp_stage must be passed if virtual pipeline is enabled"
    advice = remedy(error, f"{PACKAGES}/swift/a.py", f"{PACKAGES}/megatron/core/b.py")
    assert "swift does not pass vp_stage, which megatron needs here: install a newer swift" in advice


def test_weight_name_is_not_a_setting() -> None:
    assert "correct model" not in remedy("KeyError: 'model.layers.0.self_attn.attn'", f"{PACKAGES}/vllm/a.py")


def test_indispensable_part_is_not_suggested_for_removal() -> None:
    assert "do without" not in remedy("RuntimeError: it broke", "/job/flashinfer_test.py")
    assert "do without" not in remedy(
        "ModuleNotFoundError: No module named 'flashinfer.x'", f"{PACKAGES}/vllm/a.py"
    )


def test_empty_argument_of_a_computation_is_named() -> None:
    code = "limit = args.concurrency * args.rollout_num_gpus // args.per_engine"
    log = f"+ train.py --per-engine 2\nTraceback (most recent call last):\n  File \"{PACKAGES}/slime/http_utils.py\", line 9, in start\n    {code}\nTypeError: unsupported operand type(s) for *: 'int' and 'NoneType'\n"
    first = first_cause(log)
    advice = remedy_of(first)
    assert "one of concurrency, rollout_num_gpus is None although http_utils.py:9 computes with it" in advice
    assert "--rollout-num-gpus" in advice
    assert "do without what is not supported" not in advice


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            'assert config.algorithm.adv_estimator in [AdvantageEstimator.GRPO], "only one"',
            "set algorithm.adv_estimator=grpo: ray_trainer.py:9 accepts nothing else",
        ),
        (
            "assert config.data.rows % config.trainer.nnodes == 0, (",
            "choose the settings so that this holds: data.rows must be a multiple of trainer.nnodes",
        ),
    ],
)
def test_assertion_of_verl_is_stated_in_words(code: str, expected: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/src/verl/verl/trainer/ppo/ray_trainer.py", line 9, in _validate\n    {code}\nAssertionError\n'
    first = first_cause(log)
    assert expected in remedy_of(first)


def test_assertion_of_another_package_names_the_setting_of_verl_behind_it() -> None:
    log = (
        "Traceback (most recent call last):\n"
        f'  File "/src/verl/verl/utils/megatron/optimizer.py", line 3, in build\n    scheduler = Scheduler()\n'
        f'  File "{PACKAGES}/megatron/core/optimizer_param_scheduler.py", line 9, in __init__\n    assert self.lr_decay_steps > 0\nAssertionError\n'
    )
    first = first_cause(log)
    assert "lr_decay_steps must be greater than 0 (lr_decay_steps is actor_rollout_ref" in remedy_of(first)


@pytest.mark.parametrize(
    ("error", "places", "expected"),
    [
        (
            "NameError: name 'ParallelismConfig' is not defined",
            [f"{PACKAGES}/transformers/training_args.py"],
            "transformers imports ParallelismConfig only if accelerate is installed in a release that has it",
        ),
        (
            "NameError: name 'Replicate' is not defined",
            [f"{PACKAGES}/transformers/integrations/tensor_parallel.py"],
            "pip install 'torch>=2.5'",
        ),
        (
            "NameError: name 'Whatever' is not defined",
            [f"{PACKAGES}/trl/a.py"],
            "look at the conditional import at the top of a.py",
        ),
        (
            "AttributeError: 'Tracker' object has no attribute 'tokens'",
            [f"{PACKAGES}/sglang/a.py"],
            "that is a fault of this release of sglang, or files of two releases are mixed",
        ),
        (
            "AssertionError: global batch (10) is not divisible by data parallel size (4)",
            [f"{PACKAGES}/sglang/a.py"],
            "data parallel size of 2 or 1 divides 10, or global batch of 12 is the next multiple of 4",
        ),
        (
            "ImportError: cannot import name 'FlexibleArgumentParser' from 'vllm.utils' (/x/vllm/utils/__init__.py)",
            [f"{PACKAGES}/art/a.py"],
            "pip install 'vllm<=0.11.0'",
        ),
        (
            "ModuleNotFoundError: No module named 'sglang.srt.entrypoints.verl_engine'",
            [f"{PACKAGES}/art/a.py"],
            "pip install 'sglang>=0.4.4,<=0.4.7'",
        ),
    ],
)
def test_remedy_states_releases_only_for_a_reason(error: str, places: list[str], expected: str) -> None:
    advice = remedy(error, *places)
    assert expected in advice


def test_batch_without_a_key_is_no_state_of_verl() -> None:
    log = "Traceback (most recent call last):\n  File \"/src/verl/verl/protocol.py\", line 9, in pop\n    assert key in self.batch.keys()\nAssertionError: 'raw_ids'\n"
    first = first_cause(log)
    assert "the batch has no raw_ids, which protocol.py:9 takes out of it" in remedy_of(first)


def test_kernel_that_failed_leads_to_the_part_that_called_it() -> None:
    advice = remedy(
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "/job/a.py",
        f"{PACKAGES}/transformer_engine/pytorch/attention/backends.py",
    )
    assert advice.startswith("do without the part that failed: NVTE_FUSED_ATTN=0")
    assert "CUDA_LAUNCH_BLOCKING=1" in advice


@pytest.mark.parametrize(
    ("error", "given", "expected"),
    [
        (
            "TypeError: not all arguments converted during string formatting",
            "'data.train_batch_size=2k', 'trainer.nnodes=1'",
            "data.train_batch_size is 2k",
        ),
        (
            "TypeError: '<=' not supported between instances of 'float' and 'str'",
            "'actor_rollout_ref.actor.optim.lr=\\'1e-6,\\'', 'trainer.nnodes=1'",
            "actor_rollout_ref.actor.optim.lr is 1e-6,",
        ),
        (
            "TypeError: '<' not supported between instances of 'int' and 'NoneType'",
            "'actor_rollout_ref.actor.ppo_mini_batch_size=null', 'trainer.nnodes=1'",
            "actor_rollout_ref.actor.ppo_mini_batch_size is null",
        ),
        (
            "TypeError: unsupported operand type(s) for %: 'int' and 'str'",
            "'trainer.nnodes=1'",
            "computes with a text where it needs a number",
        ),
    ],
)
def test_setting_that_is_no_number_is_named(error: str, given: str, expected: str) -> None:
    advice = remedy(
        error,
        "/src/verl/verl/utils/config.py",
        before=f"Error executing job with overrides: [{given}]\n",
    )
    assert expected in advice
    assert "not supported" not in advice


@pytest.mark.parametrize(
    ("error", "code", "places", "expected"),
    [
        (
            "AttributeError: BUBBLE. Did you mean: 'BUBBLES'?",
            "style=SeparatorStyle.BUBBLE",
            [f"{PACKAGES}/axolotl/a.py"],
            "SeparatorStyle of the installed fastchat has no member BUBBLE, which axolotl uses: pip install -U fschat",
        ),
        (
            "AttributeError: BUBBLE",
            "kind=Kind.BUBBLE",
            [f"{PACKAGES}/axolotl/a.py"],
            "pip install -U the package from which a.py imports Kind",
        ),
        (
            "AttributeError: 'DistributedDataParallel' object has no attribute 'generate'",
            "model.generate()",
            [f"{PACKAGES}/trl/a.py"],
            "use the model inside it (model.module",
        ),
        (
            "AttributeError: 'MyGRPOTrainer' object has no attribute 'rounds'",
            "self.rounds",
            ["/job/my_trainer.py", f"{PACKAGES}/trl/trainer/grpo_trainer.py"],
            "MyGRPOTrainer extends a class of trl, which sets or expects rounds in other releases",
        ),
        (
            "AttributeError: 'OwnVLLMTrainer' object has no attribute '_tiles'",
            "self._tiles",
            ["/job/a.py", f"{PACKAGES}/transformers/trainer.py", f"{PACKAGES}/trl/trainer/grpo_trainer.py"],
            "OwnVLLMTrainer was written for another trl",
        ),
        (
            "AttributeError: 'TrainingArguments' object has no attribute 'packing'",
            "args.packing",
            ["/job/a.py", f"{PACKAGES}/trl/trainer/sft_trainer.py"],
            "pass the trainer the configuration class of its own (SFTConfig",
        ),
        (
            "AttributeError: 'MatmulLtState' object has no attribute 'backwards'",
            "state.backwards",
            [f"{PACKAGES}/peft/lora.py"],
            "MatmulLtState of the installed bitsandbytes has no backwards, which peft uses",
        ),
        (
            "ModuleNotFoundError: No module named 'megatron.training'",
            "from megatron.training import a",
            [f"{PACKAGES}/swift/a.py"],
            "git clone https://github.com/NVIDIA/Megatron-LM",
        ),
        (
            "TypeError: Engine.__init__() got an unexpected keyword argument 'ends'",
            "made = cls(**args)",
            [f"{PACKAGES}/mmengine/build.py"],
            "remove ends from that configuration",
        ),
    ],
)
def test_place_of_an_exception_tells_whose_name_it_is(
    error: str, code: str, places: list[str], expected: str
) -> None:
    frames = "".join(f'  File "{place}", line 12, in run\n    {code}\n' for place in places)
    log = f"Traceback (most recent call last):\n{frames}{error}\n"
    first = first_cause(log)
    assert expected in remedy_of(first)


def test_fault_of_a_release_is_known_by_its_last_line_alone() -> None:
    log = (
        "step:1 - loss:0.1\nTypeError: patched_routing() got an unexpected keyword argument 'padding_mask'\n"
    )
    first = first_cause(log)
    assert remedy_of(first).startswith("unless the installed verl is >=0.7.1 (pip show verl)")


def test_release_that_does_not_have_a_fault_is_not_replaced() -> None:
    error = "AttributeError: 'GRPOTrainer' object has no attribute 'current_gradient_accumulation_steps'"
    older, newer = (
        remedy(error, "/job/a.py", f"{PACKAGES}/trl/grpo_trainer.py", before=f"transformers=={version}\n")
        for version in ("4.54.1", "4.56.2")
    )
    assert older.startswith(
        "transformers 4.54.1 has this fault, >=4.55 does not: pip install 'transformers>=4.55'"
    )
    assert "has this fault" not in newer
    assert "transformers>=4.55" not in newer


@pytest.mark.parametrize(
    ("error", "places", "expected"),
    [
        (
            "ImportError: cannot import name 'Unpack' from 'typing' (/venv/lib/python3.10/typing.py)",
            ["/w/verl/models/transformers/llama.py"],
            "this Python (3.10) has no Unpack in its standard module typing, which verl imports: create the environment with Python 3.11 or newer",
        ),
        (
            "ImportError: cannot import name 'Random' from 'random' (/job/random.py)",
            [f"{PACKAGES}/ray/_common/utils.py", "/usr/lib/python3.11/tempfile.py"],
            "rename /job/random.py: it hides Python's own module random, which",
        ),
        (
            f"ImportError: cannot import name 'StrEnum' from 'enum' ({PACKAGES}/enum/__init__.py)",
            ["/w/verl/trainer/main_ppo.py"],
            f"uninstall the package that brought {PACKAGES}/enum/__init__.py: it hides Python's own module enum",
        ),
        (
            "ValueError: Hybrid attention requires cp_partition_mode='contiguous'.",
            ["/w/verl/workers/megatron_workers.py", "/w/Megatron-LM/megatron/core/attention.py"],
            "in verl, cp_partition_mode is +actor_rollout_ref.actor.megatron.override_transformer_config.cp_partition_mode",
        ),
        (
            "AssertionError: log_probs -> <class 'NoneType'> isn't of 'torch.Tensor | list' type",
            ["/w/verl/utils/tensordict_utils.py"],
            "log_probs is None when tensordict_utils.py:12 puts it into the batch: set rollout.calculate_log_probs=True",
        ),
        (
            "TypeError: got an unexpected keyword argument 'devices'",
            ["/w/verl/workers/rollout/replica.py", f"{PACKAGES}/ray/_common/signature.py"],
            "the actor or remote function that verl calls does not accept devices",
        ),
        (
            f"OSError: {PACKAGES}/transformer_engine/libte.so: undefined symbol: cublasLtTileGroups, version libcublasLt.so.13",
            ["/w/train.py"],
            "transformer_engine was built with a newer libcublasLt.so.13 than the one that is loaded: pip install -U nvidia-cublas with",
        ),
        (
            f"OSError: {PACKAGES}/sampler/core.so: undefined symbol: cublasLtTileGroups, version libcublasLt.so.12",
            ["/w/train.py"],
            "pip install -U nvidia-cublas-cu12 with",
        ),
        (
            "TypeError: object of type 'bool' has no len()",
            [
                f"{PACKAGES}/transformer_engine/linear.py",
                f"{PACKAGES}/modelopt/plugins/transformer_engine.py",
            ],
            "transformer_engine.py:12 is the part of modelopt for transformer_engine, and this transformer_engine is of another release",
        ),
        (
            "TypeError: object of type 'bool' has no len()",
            [f"{PACKAGES}/transformer_engine/linear.py", f"{PACKAGES}/modelopt/plugins/linear.py"],
            "check whether transformer_engine and modelopt fit",
        ),
        (
            "AttributeError: Qwen2Tokenizer has no attribute lower",
            ["/job/a.py", f"{PACKAGES}/vllm/tokenizer.py", f"{PACKAGES}/transformers/base.py"],
            "expects a text and was given a Qwen2Tokenizer (a.py:12 passes it): pass the path or the name",
        ),
        (
            "AttributeError: 'Namespace' object has no attribute 'vllm_naps'",
            [f"{PACKAGES}/openrlhf/cli/train_it.py", f"{PACKAGES}/openrlhf/trainer/fit.py"],
            "openrlhf reads the argument vllm_naps, which the entry point that ran (train_it.py) does not define",
        ),
        (
            "AttributeError: 'Namespace' object has no attribute 'sglang_naps'",
            ["/w/slime/train.py", "/w/slime/utils/arguments.py"],
            "slime makes its arguments from those of sglang",
        ),
        (
            "AttributeError: 'PeftModelForCausalLM' object has no attribute 'save_pretrained_merged'",
            ["/job/merge.py"],
            "call model.merge_and_unload().save_pretrained(FOLDER)",
        ),
        (
            "ValueError: Input tensor (shape=(10, 1, 96)) and weight tensor (shape=(384,)) are not compatible",
            [f"{PACKAGES}/transformer_engine/norm.py"],
            "one is divided among 4 ranks of tensor parallelism",
        ),
        (
            "ValueError: Please upgrade torch to at least v2.6 in order to load `lazily=True`.",
            [f"{PACKAGES}/transformers/utils/check_utils.py"],
            "upgrade torch to at least v2.6",
        ),
    ],
)
def test_place_and_message_name_the_next_step(error: str, places: list[str], expected: str) -> None:
    assert expected in remedy(error, *places)


def result_of(code: str) -> str:
    """Remedy for a key that this line of verl's agent loop does not find."""
    log = f"Traceback (most recent call last):\n  File \"/w/verl/experimental/agent_loop/agent_loop.py\", line 9, in run\n    {code}\nKeyError: 'extra'\n"
    first = first_cause(log)
    return remedy_of(first)


def test_key_missing_from_a_result_is_not_missing_from_the_data() -> None:
    assert "agent_loop.py:9 calls returns no extra" in result_of('extra = result["extra"]')
    assert "the rows of the data have no extra" in result_of('extra = row["extra"]')


def test_function_that_verl_repaired_is_named_with_the_release() -> None:
    log = 'Traceback (most recent call last):\n  File "/w/verl/utils/debug/metrics.py", line 92, in calculate_debug_metrics\n    a = b - c\nRuntimeError: The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1\n'
    for version, is_named in (("", True), ("verl 0.7.1\n", True), ("verl 0.8.0\n", False)):
        first = first_cause(f"{version}{log}")
        assert ("check out a release >=0.8.0 of verl" in remedy_of(first)) is is_named
        assert "pip install 'verl" not in remedy_of(first)
