"""The interpreter that the examples of several rules start from."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter

PYTHON = Interpreter(
    executable="/env/bin/python",
    version="3.11.7",
    implementation="cpython",
    cache_tag="cpython-311",
    environment="venv",
    prefix="/env",
    sys_path=(),
    site_packages=("/env/lib/python3.11/site-packages",),
    system="Linux",
    machine="x86_64",
    glibc="2.36",
    verl="",
    vllm="",
)
