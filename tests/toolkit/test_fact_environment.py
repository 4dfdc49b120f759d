"""Which variables are read, and which never are."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.fact_environment import Variables, variables
from verl_doctor.toolkit.machine import Machine


def read(**environ: str) -> Variables:
    found = variables.collect(Machine(environ=environ))
    assert isinstance(found, Variables)
    return found


def test_what_matters_to_a_job_is_read() -> None:
    assert read(NCCL_DEBUG="INFO", VLLM_USE_V1="1").values == {"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1"}


def test_what_is_not_on_the_list_is_not_there() -> None:
    assert read(MY_DIARY="dear", AWS_SECRET_ACCESS_KEY="x") == Variables()


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "RAY_AUTH_TOKEN", "PYTHON_PASSWORD", "HF_MYSECRET", "CUDA_KEYS"]
)
def test_a_value_whose_name_smells_of_a_secret_is_withheld(name: str) -> None:
    found = read(**{name: "hunter2"})
    assert found == Variables(withheld=(name,))


def test_tokenizers_are_no_tokens() -> None:
    assert read(TOKENIZERS_PARALLELISM="false").get("TOKENIZERS_PARALLELISM") == "false"


def test_a_password_inside_of_a_url_is_blanked() -> None:
    found = read(http_proxy="http://me:hunter2@proxy:3128", HTTPS_PROXY="http://me@proxy")
    assert found.values == {"http_proxy": "http://***@proxy:3128", "HTTPS_PROXY": "http://***@proxy"}


def test_an_endless_value_is_cut() -> None:
    assert len(read(LD_LIBRARY_PATH="/x:" * 100_000).get("LD_LIBRARY_PATH")) < 40_000


def test_a_variable_that_is_not_set_is_empty() -> None:
    assert read().get("PYTHONDONTWRITEBYTECODE") == ""
