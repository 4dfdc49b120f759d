"""Exceptions without a signature: the responsible code, the named setting, and no blame without a failure."""

from __future__ import annotations

import pytest
from support.logs.builder import DRIVER_SAW_IT, NOISE, RAY, spoken, traceback

from verl_doctor.toolkit.logs.blame import Fault, is_of_the_job, package_of, settings_in
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.python_errors import Frame

SITE = "/env/lib/python3.11/site-packages"
JOB = "Error executing job with overrides: ['data.pad_mode=left', 'trainer.logger=[console,tensorbord]', 'data.train_files=/data/tables/train.csv', 'trainer.nnodes=1']\n"


def raised(error: str, *places: str, code: str = "call()") -> str:
    """An exception with its traceback through these places ("FILE function")."""
    frames = (place.split(" ") for place in places)
    lines = [
        f'  File "{path}", line {at}, in {function}\n    {code}\n'
        for at, (path, function) in enumerate(frames, 7)
    ]
    return f"Traceback (most recent call last):\n{''.join(lines)}{error}\n"


def first_of(log: str) -> LoggedError | None:
    return read(list(log_lines(log)), "run.log").first


def blamed(log: str) -> tuple[Fault, tuple[str, ...], str]:
    """The fault, the settings, and the place."""
    first = first_of(log)
    assert first is not None
    assert first.blame is not None
    return first.blame.fault, first.blame.settings, first.blame.place


FIT = f"{SITE}/verl/trainer/ppo/ray_trainer.py fit"


@pytest.mark.parametrize(
    ("places", "fault", "place"),
    [
        ((FIT, "/home/u/reward.py score"), "code", "/home/u/reward.py:8, in score"),
        ((FIT, "/home/u/reward.py score", "/usr/lib/python3.11/json/decoder.py decode"), "code", "/home/u/reward.py:8, in score"),
        ((FIT, "/home/u/verl/my_reward.py score"), "code", "/home/u/verl/my_reward.py:8, in score"),
        ((FIT, "/home/u/verl/recipe/dapo/reward.py score"), "code", "/home/u/verl/recipe/dapo/reward.py:8, in score"),
        (("/home/u/train.py <module>", FIT), "program", "verl/trainer/ppo/ray_trainer.py:8, in fit"),
        (("/home/u/verl/verl/trainer/main_ppo.py run", "/home/u/verl/verl/utils/fs.py copy"), "program", "verl/utils/fs.py:8, in copy"),
        ((FIT, "/src/vllm/vllm/v1/engine/core.py step"), "program", "vllm/v1/engine/core.py:8, in step"),
        ((FIT, f"{SITE}/unheard_of/x.py f"), "program", "unheard_of/x.py:8, in f"),
        ((FIT, "/src/Megatron-LM/tools/checkpoint/schema_base.py _set"), "program", "/src/Megatron-LM/tools/checkpoint/schema_base.py:8, in _set"),
        (("/home/u/ms-swift/venv/lib/python3.10/site-packages/trl/trainer/a.py f",), "program", "trl/trainer/a.py:7, in f"),
        (("/home/u/ROLL/examples/start.py <module>", "/home/u/ROLL/roll/pipeline/a.py run"), "program", "roll/pipeline/a.py:8, in run"),
        ((f"{SITE}/vllm_ascend/quantization/w8a8.py apply", f"{SITE}/torch/_ops.py call"), "program", "vllm_ascend/quantization/w8a8.py:7, in apply"),
        ((FIT, "/src/diffusers/src/diffusers/hooks/hooks.py call"), "program", "diffusers/hooks/hooks.py:8, in call"),
        (("/env/bin/llamafactory-cli <module>",), "program", "/env/bin/llamafactory-cli:7, in <module>"),
        (("/home/u/bin/train.py <module>",), "code", "/home/u/bin/train.py:7, in <module>"),
        ((f"{SITE}/pandas/core/indexes/base.py get_loc", "index.pyx pandas._libs.index.IndexEngine.get_loc"), "program", "pandas/core/indexes/base.py:7, in get_loc"),
        (("/home/u/model.py forward", f"{SITE}/torch/nn/modules/module.py _call_impl"), "code", "/home/u/model.py:7, in forward"),
    ],
)  # fmt: skip
def test_deepest_frame_outside_packages_determines_the_fault(
    places: tuple[str, ...], fault: str, place: str
) -> None:
    found, _, where = blamed(JOB + raised("JudgeError: no", *places))
    assert found == fault
    assert where == place


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        ("AssertionError: Expect pad_mode to be 'right' or 'no_padding'. Got left", ("data.pad_mode",)),
        ("AssertionError: tensorbord is not supported", ("trainer.logger",)),
        ("ValueError: Unsupported file format: /data/tables/train.csv", ("data.train_files",)),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/tables'", ("data.train_files",)),
        ("ValueError: set actor_rollout_ref.actor.strategy to fsdp", ("actor_rollout_ref.actor.strategy",)),
        ("omegaconf.errors.InterpolationKeyError: Interpolation key 'x' not found\n    full_key: trainer.default_local_dir", ("trainer.default_local_dir",)),
    ],
)  # fmt: skip
def test_exception_that_names_a_setting_is_a_configuration_fault(
    error: str, settings: tuple[str, ...]
) -> None:
    assert blamed(JOB + raised(error, FIT))[:2] == ("configuration", settings)


@pytest.mark.parametrize("error", ["ValueError: 1 is not enough", "OSError: /job/reward.py is too long"])
def test_numbers_and_file_names_are_not_settings(error: str) -> None:
    assert blamed(JOB + raised(error, FIT))[:2] == ("program", ())


def test_assertion_without_a_message_is_quoted_with_its_setting() -> None:
    log = JOB + raised("AssertionError", FIT, code="assert self.pad_mode in KNOWN")
    assert blamed(log)[:2] == ("configuration", ("data.pad_mode",))
    first = first_of(log)
    assert first is not None
    assert first.words == "AssertionError: assert self.pad_mode in KNOWN"
    assert "    assert self.pad_mode in KNOWN" in first.lines


def test_consequence_is_not_named_after_its_cause() -> None:
    worker = spoken(
        raised("AttributeError: no function score", f"{SITE}/verl/utils/import_utils.py load"), RAY
    )
    end = raised(
        "RuntimeError: Sync replay buffer selected terminal groups with no materializable trajectories.", FIT
    )
    first = first_of(worker + end)
    assert first is not None
    assert first.words == "AttributeError: no function score"
    assert first_of(DRIVER_SAW_IT) is None
    assert first_of(end) is None


@pytest.mark.parametrize(
    ("log", "fault", "phase", "words"),
    [
        ("+ cd /gone\nrun.sh: line 3: cd: /gone: No such file or directory\n", "launch", "shell", "run.sh: line 3"),
        ("run.sh: line 3: RUN: unbound variable\n", "launch", "shell", "run.sh: line 3: RUN"),
        ("run.sh: 3: source: not found\n", "launch", "shell", "run.sh: 3"),
        ("usage: t [-h] [--x {a,b}]\nt: error: argument --x: invalid choice: 'c'\nsrun: error: n1: task 0: Exited\n", "configuration", "import", "t: error: argument --x"),
        ("INFO:a.b:fine\nPrimary config directory not found.\nCheck it\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n", "configuration", "composition", "Primary config directory not found."),
        ("Cannot find primary config 'g'. Check it.\n\nConfig search path:\n\tprovider=hydra\n\nSet the environment variable HYDRA_FULL_ERROR=1\n", "configuration", "composition", "Cannot find primary config 'g'."),
    ],
)  # fmt: skip
def test_refusal_without_a_traceback_counts(log: str, fault: str, phase: str, words: str) -> None:
    first = first_of(log)
    assert first is not None
    assert first.blame is not None
    assert (first.blame.fault, first.phase) == (fault, phase)
    assert first.words.startswith(words)


def test_argument_refused_by_a_server_explains_its_exit() -> None:
    refusal = "usage: w.py [-h]\nw.py: error: argument --dtype: invalid choice: 'float17'\n"
    output = spoken(refusal, "(vLLMHttpServer pid=7) ")
    for log in (output + DRIVER_SAW_IT, DRIVER_SAW_IT + output):  # Ray may print it last
        first = first_of(log)
        assert first is not None
        assert first.blame is not None
        assert (first.blame.settings, first.phase) == (("--dtype",), "engine")
        assert first.words == "w.py: error: argument --dtype: invalid choice: 'float17'"
    assert first_of(DRIVER_SAW_IT + refusal) is None  # of another program that the script starts then


def test_what_the_driver_raises_after_the_training_is_judged() -> None:
    missing = traceback("FileNotFoundError: [Errno 2] No such file or directory: '/job/traces/t.json'")
    done = "(TaskRunner pid=7) 'Final validation metrics: None'\n"
    command = "+ python3 -m verl.trainer.main_ppo a=1 ray_kwargs.timeline_json_file=/job/traces/t.json\n"
    first = first_of(f"{command}{done}{missing}")
    assert first is not None
    assert first.blame is not None
    assert (first.blame.settings, first.phase) == (("ray_kwargs.timeline_json_file",), "end")
    later = spoken(missing, "(WorkerDict pid=9) ")
    assert first_of(f"{command}{done}{later}") is None


def test_failed_look_up_whose_place_was_printed_is_preferred() -> None:
    first = first_of(
        "ray.exceptions.RayTaskError(KeyError): ray::run()\n           ~~~~~^^^\nKeyError: 'values'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        + traceback(
            "KeyError: 'key \"values\" not found in TensorDict'",
            place="/x/site-packages/verl/trainer/ppo/ray_trainer.py",
        )
    )
    assert first is not None
    assert "not found in TensorDict" in first.words


@pytest.mark.parametrize(
    "log",
    [
        NOISE,
        "run.sh: line 3: my_tool: command not found\n(TaskRunner pid=1) dataset len: 8\n",
        "run.sh: line 3: my_tool: command not found\nstep:1 - a:1\n",
        f"{JOB}{raised('JudgeError: no', '/home/u/reward.py score')}step:1 - a:1\nFinal validation metrics: x\n",
        raised("KeyboardInterrupt", "/home/u/train.py main"),
        f"{JOB}{raised('JudgeError: no', '/home/u/reward.py score')}step:1 - a:1\nstep:2 - a:1\n",
        f"{spoken(raised('JudgeError: no', '/home/u/reward.py score'), RAY)}step:1 - a:1\n",
        "(raylet) Killed\n",
    ],
)
def test_no_cause_is_given_without_a_failure_or_evidence(log: str) -> None:
    assert first_of(log) is None


def test_exception_without_a_traceback_is_still_the_cause() -> None:
    alone = first_of("JudgeError: the judge did not answer\n")
    assert alone is not None
    assert alone.blame is not None
    assert (alone.blame.code, alone.blame.place) == ("LOG163", "")


@pytest.mark.parametrize(
    ("error", "place", "fault"),
    [
        ("ValueError: `max_tokens` must be at least 1, got 0.", f"{SITE}/vllm/sampling_params.py __post_init__", "configuration"),
        ("ValueError: The rank must be positive", f"{SITE}/peft/tuners/lora/layer.py update_layer", "configuration"),
        ("RuntimeError: the rank must be positive", f"{SITE}/trl/trainer/a.py __init__", "program"),
        ("ValueError: the shapes are strange", f"{SITE}/transformers/models/a.py forward", "program"),
        ("ValueError: even with `lazily=True`, users must upgrade torch to at least v2.6", f"{SITE}/transformers/a.py check_it", "program"),
    ],
)  # fmt: skip
def test_argument_check_of_a_library_is_a_configuration_fault(error: str, place: str, fault: Fault) -> None:
    assert blamed(raised(error, "/home/u/train.py <module>", place))[0] == fault


def test_attribute_read_by_code_is_not_a_setting() -> None:
    log = raised(
        "AttributeError: 'Generation' object has no attribute 'client'",
        "/home/u/train.py <module>",
        f"{SITE}/trl/experimental/utils.py run",
        code="output = trainer.generation.client.generate(prompts)",
    )
    assert blamed(log)[:2] == ("program", ())


def test_undefined_name_of_a_missing_package_is_a_missing_package() -> None:
    announced = (
        "WARNING saver.py:3] fast-saver is not installed. Please install it via `pip3 install fast-saver`.\n"
    )
    undefined = raised(
        "NameError: name 'fast_saver' is not defined", f"{SITE}/sglang/srt/adapter.py configure"
    )
    first = first_of(announced + undefined)
    assert first is not None
    assert first.blame is not None
    assert first.blame.title == "sglang needs fast-saver, which is not installed"
    assert first.lines[0] == announced.strip()
    for other in ("", "INFO fast-saver is installed\n", "WARNING fast-saver-tools is not installed\n"):
        found = first_of(other + undefined)
        assert found is not None, other
        assert found.blame is not None, other
        assert not found.blame.missing, other


def test_store_key_is_not_a_file() -> None:
    first = first_of(
        raised(
            "torch.distributed.DistStoreError: keys: /from/0/0 are missing",
            f"{SITE}/vllm/distributed/utils.py get",
        )
    )
    assert first is not None
    assert first.blame is not None
    assert not first.blame.file


def test_missing_key_belongs_to_the_place_that_reads_it() -> None:
    reads = f"{SITE}/verl/trainer/ppo/ray_trainer.py apply_kl_penalty"
    looks_up = (f"{SITE}/tensordict/base.py __getitem__", f"{SITE}/tensordict/_td.py _default_get")
    log = raised(
        "KeyError: 'key \"response_mask\" not found in TensorDict with keys []'",
        reads,
        *looks_up,
        code='mask = data.batch["response_mask"]',
    )
    assert blamed(log) == ("program", (), "verl/trainer/ppo/ray_trainer.py:7, in apply_kl_penalty")
    assert blamed(log.replace(reads.split(maxsplit=1)[0], "/home/u/reward.py"))[0] == "code"


def test_command_that_the_shell_does_not_find_is_named() -> None:
    first = first_of("step 1\nrun.sh: line 3: swift: command not found\n")
    assert first is not None
    assert first.blame is not None
    assert first.blame.remedy.startswith("install swift where the script runs")


def test_failed_parse_gives_way_to_the_exception_that_reports_it() -> None:
    parsed = raised(
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        f"{SITE}/accelerate/utils/deepspeed.py __init__",
    )
    reported = raised("ValueError: no such file: a.json", f"{SITE}/accelerate/utils/deepspeed.py __init__")
    first = first_of(
        f"{parsed}\nDuring handling of the above exception, another exception occurred:\n\n{reported}"
    )
    assert first is not None
    assert first.words == "ValueError: no such file: a.json"


def test_setting_with_an_empty_value_is_named() -> None:
    log = "Error executing job with overrides: ['trainer.nnodes=1', 'trainer.n_gpus_per_node=']\n" + raised(
        "TypeError: unsupported operand type(s) for //: 'int' and 'str'", f"{SITE}/verl/workers/a.py __init__"
    )
    assert blamed(log)[:2] == ("configuration", ("trainer.n_gpus_per_node",))


def test_copy_of_a_model_is_not_the_code_of_the_job() -> None:
    error = "ValueError: Image features and image tokens do not match: tokens: 4096, features 36864"
    assert blamed(raised(error, "/home/u/src/qwen2_vl/modeling_qwen2_vl.py forward"))[0] == "program"


@pytest.mark.parametrize(
    ("path", "package", "is_own"),
    [
        ("/home/ray/verl/verl/workers/a.py", "verl", False),
        ("/home/ray/train.py", "", True),
        ("/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_1/rewards.py", "", True),
        ("/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_1/nemo_rl/a.py", "nemo_rl", False),
        ("/src/ray/python/ray/a.py", "ray", False),
        ("/server/model-server/model-server/vllm/a.py", "model_server", False),
        ("/home/u/vllm-gaudi/vllm_gaudi/v1/a.py", "vllm_gaudi", False),
        ("python/ray/_raylet.pyx", "ray", False),
    ],
)
def test_folder_around_a_file_is_its_package_where_it_is_known(path: str, package: str, is_own: bool) -> None:
    frame = Frame(path, 1)
    assert (package_of(frame), is_of_the_job(frame)) == (package, is_own)


def test_name_of_a_weight_is_no_setting() -> None:
    message = "Error(s) in loading:\n\tsize mismatch for model.embed_tokens.weight: of another shape"
    assert settings_in(message, "", []) == ()
    assert settings_in("model.path is empty", "", []) == ("model.path",)
