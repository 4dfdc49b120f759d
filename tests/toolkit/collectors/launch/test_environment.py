"""Which variables are read, and which never are."""

from __future__ import annotations

import json

import pytest

from verl_doctor.toolkit.collectors.launch.environment import Variables, variables
from verl_doctor.toolkit.machine import Machine


def read(**environ: str) -> Variables:
    found = variables.collect(Machine(environ=environ))
    assert isinstance(found, Variables)
    return found


def test_variables_relevant_to_a_job_are_read() -> None:
    assert read(NCCL_DEBUG="INFO", VLLM_USE_V1="1").values == {"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1"}


def test_other_variables_are_not_read() -> None:
    assert read(MY_DIARY="dear", AWS_SECRET_ACCESS_KEY="x") == Variables()


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "VLLM_API_KEY",
        "RAY_AUTH_TOKEN",
        "PYTHON_PASSWORD",
        "HF_MYSECRET",
        "CUDA_KEYS",
        "SLURM_JWT",
        "SLURM_SRUNJWT",
        "HF_PAT",
        "HF_GITPAT",
        "RAY_BEARER",
        "RAY_AZURE_SAS",
        "RAY_BLOBSAS_2",
        "RAY_COOKIE",
        "RAY_SESSIONCOOKIES",
        "RAY_AUTH",
        "RAY_BASICAUTH",
        "RAY_OAUTH2",
        "RAY_Authorization",
        "HF_TOKEN_2",
        "HF_TOKEN2",
        "HF_TOKENS",
        "HF_API",
        "HF_API_KEY_CACHE",
        "HF_apiKey",
        "HF_PassWord",
        "RAY_REDIS_PASS",
        "RAY_CREDS",
    ],
)
def test_value_of_a_secret_looking_name_is_withheld(name: str) -> None:
    found = read(**{name: "hunter2"})
    assert found == Variables(withheld=(name,))


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_COMPAT_PATH",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_TOKEN_PATH",
        "NCCL_IB_PKEY",
        "NCCL_SOCKET_IFNAME",
        "NVIDIA_COMPAT",
        "PATH",
        "PYTHONPATH",
        "RAY_ADDRESS",
        "RAY_AUTH_MODE",
        "SLURM_JOB_ID",
        "TOKENIZERS_PARALLELISM",
        "TORCH_CUDNN_V8_API_ENABLED",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "UCX_IB_PKEY",
        "VERL_AUTHOR",
        "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "VLLM_KV_KEY_CACHE_DTYPE",
        "VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE",
        "VLLM_PATTERN",
    ],
)
def test_harmless_name_that_resembles_a_secret_is_read(name: str) -> None:
    assert read(**{name: "/some/value"}).values == {name: "/some/value"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:hunter2@proxy:3128", "http://***@proxy:3128"),
        ("http://me@proxy", "http://***@proxy"),
        ("http://me:hunter2@one,http://me:hunter2@two", "http://***@one,http://***@two"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("proxy.corp:3128", "proxy.corp:3128"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://me:hunter2@hunter2@proxy", "http://***@proxy"),
        ("http://me:hun/ter2@proxy:3128", "http://***@proxy:3128"),
        ("http:/me:hunter2@proxy", "http:/***@proxy"),
    ],
)
@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "VLLM_CUSTOM_URL"])
def test_credentials_in_a_url_are_masked(name: str, value: str, shown: str) -> None:
    assert read(**{name: value}).get(name) == shown


@pytest.mark.parametrize(
    "value",
    [
        "me:hunter2@proxy:3128",
        ":hunter2@proxy:3128",
        "me:hun/ter2@proxy:3128",
        "http%3A%2F%2Fme%3Ahunter2%40proxy",
        "serve --token=hunter2 --port 80",
        "serve --api-key hunter2 --port 80",
        """--password="hunter2 hunter2" x='1' """,
        "-Dpassword=hunter2",
        "--opts=token=hunter2",
        "+a.b.secret=hunter2 a.c=1",
        "Authorization: Basic hunter2 hunter2",
        "say Bearer hunter2hunter2",
        "https://x.y/z?a=1&token=hunter2",
        "https://x.y/z?sv=1&sig=hunter2&se=2",
        "https://x.y/z?X-Amz-Signature=hunter2",
        "x=hf_abcdefghijklmnopqrstuvwxyz01234567",
        "AKIAIOSFODNN7EXAMPLE",
        "a,sk-hunter2hunter2,b",
        '{"env_vars": {"HF_TOKEN": "hunter2"}}',
        json.dumps({"inner": json.dumps({"jwt": "hunter2"})}),
        '["serve", "--token", "hunter2"]',
        '[{"name": "WANDB_API_KEY", "value": "hunter2"}]',
        "{'token': 'hunter2'}",
        '{"token": "hunter2"',
        '--config={"a": {"token": "hunter2"}}',
        "-----BEGIN PRIVATE KEY-----\nhunter2",
    ],
)
def test_value_that_may_contain_a_secret_is_withheld(value: str) -> None:
    assert read(RAY_X=value) == Variables(withheld=("RAY_X",))
    assert read(http_proxy=value) == Variables(withheld=("http_proxy",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no_proxy", "[::1],localhost,auth:80,.svc,10.0.0.0/8,*.token.corp:8080,secret.corp"),
        ("PATH", "/spack/gcc@12/bin:/spack/auth:/usr/token:/x:/gcc@13/lib:/m/hf_Qwen25MathInstruct7B"),
        ("RAY_ADDRESS", "[fd00::1]:6379"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f3c,GPU-11aa"),
        ("PYTHONWARNINGS", "ignore::DeprecationWarning"),
        ("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"env_vars": {"NCCL_DEBUG": "INFO"}, "port": 80}'),
        ("VLLM_LIST", "[0,1]"),
        ("SLURM_JOB_NODELIST", "gpu[01-04,07]"),
    ],
)
def test_value_without_a_secret_is_read_verbatim(name: str, value: str) -> None:
    assert read(**{name: value}).get(name) == value


@pytest.mark.parametrize(
    "value", ["/a:/x?token=hunter2", "/a:https://x?X-Amz-Signature=hunter2", "/a:/ghp_hunter2hunter2hunter2"]
)
def test_path_list_containing_a_secret_is_withheld(value: str) -> None:
    assert read(PYTHONPATH=value) == Variables(withheld=("PYTHONPATH",))


def test_user_text_about_the_job_is_not_read() -> None:
    assert read(SLURM_JOB_COMMENT="hunter2", SLURM_JOB_ID="1").values == {"SLURM_JOB_ID": "1"}


def test_value_is_truncated_after_masking() -> None:
    assert "hunter2" not in read(http_proxy="http://me:" + "hunter2" * 10_000 + "@proxy").get("http_proxy")


def test_very_long_value_is_truncated() -> None:
    assert len(read(LD_LIBRARY_PATH="/x:" * 100_000).get("LD_LIBRARY_PATH")) < 40_000


def test_unset_variable_reads_as_empty() -> None:
    assert read().get("PYTHONDONTWRITEBYTECODE") == ""
