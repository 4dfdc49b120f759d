"""From a log to the first cause: chains, errors of other processes, silent deaths, and uninformative logs."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.first_cause import first_cause

CHAIN = """
Traceback (most recent call last):
  File "a.py", line 1, in load
    import b
ImportError: libgomp.so.1: cannot open shared object file: No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in load
    import c
ModuleNotFoundError: No module named 'c'
"""
LOOKUP = """
Traceback (most recent call last):
  File "registry.py", line 7, in get
    return known[name]
KeyError: 'qwen9'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "registry.py", line 9, in get
    raise ValueError(f"{name} is no architecture that is known") from error
ValueError: qwen9 is no architecture that is known
"""
OVERRIDE = """
Traceback (most recent call last):
  File "/venv/omegaconf/_utils.py", line 797, in _raise
omegaconf.errors.ConfigAttributeError: Key 'trian' is not in struct

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/venv/hydra/config_loader_impl.py", line 383, in _apply
hydra.errors.ConfigCompositionException: Could not override 'data.trian'.
"""
REMOTE = """
(TaskRunner pid=11) begins
Traceback (most recent call last):
  File "main.py", line 5, in main
    ray.get(runner.run.remote())
ray.exceptions.RayTaskError(AttributeError): \x1b[36mray::TaskRunner.run()\x1b[39m (pid=11, ip=10.0.0.1, actor_id=a1)
  File "main.py", line 9, in run
    ray.get(worker.init.remote())
ray.exceptions.RayTaskError(AttributeError): \x1b[36mray::WorkerDict.init()\x1b[39m (pid=12, ip=10.0.0.1, repr=<W>)
         ~~^^^
KeyError: 'a'

The above exception was the direct cause of the following exception:

\x1b[36mray::WorkerDict.init()\x1b[39m (pid=12, ip=10.0.0.1, actor_id=a2, repr=<W>)
  File "worker.py", line 30, in init
    weight.weight_loader
AttributeError: 'Parameter' object has no attribute 'weight_loader'
"""
UNPICKLED = """
\x1b[36m(Server pid=7)\x1b[0m The original cause of the RayTaskError (pydantic.ValidationError) isn't serializable.
\x1b[36m(Server pid=7)\x1b[0m Traceback (most recent call last):
\x1b[36m(Server pid=7)\x1b[0m   File "config.py", line 4, in check
\x1b[36m(Server pid=7)\x1b[0m pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
\x1b[36m(Server pid=7)\x1b[0m   Value error, Sleep mode is not supported on current platform. [type=value_error, input_value=ArgsKwargs(()), input_type=X]
\x1b[36m(Server pid=7)\x1b[0m     For further information visit https://errors.pydantic.dev/2.14/v/value_error
\x1b[36m(Server pid=7)\x1b[0m
\x1b[36m(Server pid=7)\x1b[0m During handling of the above exception, another exception occurred:
\x1b[36m(Server pid=7)\x1b[0m
\x1b[36m(Server pid=7)\x1b[0m Traceback (most recent call last):
\x1b[36m(Server pid=7)\x1b[0m   File "exceptions.py", line 186, in __init__
\x1b[36m(Server pid=7)\x1b[0m TypeError: cannot pickle 'ArgsKwargs' object
"""
ENGINE = """
(EngineCore_DP0 pid=5) ERROR 11-20 12:00:00 [core.py:700] EngineCore failed to start.
(EngineCore_DP0 pid=5) ERROR 11-20 12:00:00 [core.py:700] Traceback (most recent call last):
(EngineCore_DP0 pid=5) ERROR 11-20 12:00:00 [core.py:700]   File "core.py", line 690, in run
INFO 11-20 12:00:00 [llm.py:1] another process speaks
(EngineCore_DP0 pid=5) ERROR 11-20 12:00:00 [core.py:700] safetensors_rust.SafetensorError: Error while deserializing header
Traceback (most recent call last):
  File "t.py", line 2, in <module>
    LLM("m")
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
HARMLESS = """
(Worker pid=3) WARNING 11-20 12:00:00 [utils.py:3] Traceback (most recent call last):
(Worker pid=3) WARNING 11-20 12:00:00 [utils.py:3] ValueError: no tuned configuration
Exception ignored in: <function Pool.__del__ at 0x7f>
Traceback (most recent call last):
  File "pool.py", line 3, in __del__
OSError: [Errno 9] Bad file descriptor
Traceback (most recent call last):
  File "t.py", line 2, in <module>
RuntimeError: Distributed package doesn't have NCCL built in
"""
KILLED = """
(raylet) A worker died or was killed while executing a task by an unexpected system error.
(W pid=4) *** SIGSEGV received at time=1795298669 on cpu 1 ***
Traceback (most recent call last):
  File "main.py", line 5, in main
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: W
The actor is dead because its worker process has died.
"""
NO_WORD = KILLED.replace("(W pid=4) *** SIGSEGV received at time=1795298669 on cpu 1 ***\n", "")
HYDRA = """
[2026-11-20 12:00:00,000][x][INFO] - fine
Could not override 'data.trian_batch_size'.
Key 'trian_batch_size' is not in struct
    full_key: data.trian_batch_size
    object_type=dict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""

LOGS = {
    "an import within an import": (CHAIN, "ImportError: libgomp.so.1: cannot open", 5),
    "a look-up says less than what is raised for it": (LOOKUP, "ValueError: qwen9 is no architecture", 12),
    "an override of a key that is not there": (
        OVERRIDE,
        "ConfigCompositionException: Could not override 'data.trian'.",
        10,
    ),
    "two processes away": (REMOTE, "AttributeError: 'Parameter' object has no attribute 'weight_loader'", 18),
    "an error that cannot be pickled": (
        UNPICKLED,
        "ValidationError: 1 validation error for ModelConfig Value error, Sleep mode is not supported on current platform.",
        5,
    ),
    "the engine says where to look": (ENGINE, "SafetensorError: Error while deserializing header", 6),
    "warnings and what Python ignores": (HARMLESS, "RuntimeError: Distributed package doesn't have NCCL", 10),
    "a signal before the actor's death": (KILLED, "*** SIGSEGV received at time=1795298669", 3),
    "an actor's death that nothing explains": (
        NO_WORD,
        "ActorDiedError: The actor died unexpectedly before finishing this task. The actor is dead because",
        5,
    ),
    "no traceback": (
        HYDRA,
        "Could not override 'data.trian_batch_size'. Key 'trian_batch_size' is not in",
        3,
    ),
    "a log whose blanks are gone": (
        'Traceback (most recent call last):\nFile "a.py", line 1, in f\nself.g()\n^^^^^^^^\nFile "b.py", line 2, in g\nValueError: no\n',
        "ValueError: no",
        6,
    ),
    "a C++ exception": (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  no kernel image is available\n",
        "terminate called after throwing an instance of 'c10::Error': no kernel image is available",
        1,
    ),
    "the shell": (
        "step 1\nrun.sh: line 3: python4: command not found\n",
        "run.sh: line 3: python4: command not",
        2,
    ),
}


@pytest.mark.parametrize(("text", "words", "number"), LOGS.values(), ids=LOGS)
def test_first_cause_is_named_with_its_line(text: str, words: str, number: int) -> None:
    cause = first_cause(text)
    assert cause is not None
    assert cause.words.startswith(words)
    assert cause.number == number
    assert "\x1b" not in "".join(cause.lines)


@pytest.mark.parametrize("text", ["", "loading\n", "step:1 reward:0.5\nstep:2 reward:0.7\n"])
def test_uninformative_log_gives_no_cause(text: str) -> None:
    assert first_cause(text) is None


def test_process_and_frame_of_an_error_are_reported() -> None:
    cause = first_cause(ENGINE)
    assert cause is not None
    assert (cause.process, cause.frame) == ("EngineCore_DP0 pid=5", 'File "core.py", line 690, in run')
    assert [line.rpartition("] ")[2] for line in cause.lines] == [
        '  File "core.py", line 690, in run',
        "safetensors_rust.SafetensorError: Error while deserializing header",
    ]


def test_repeated_error_is_shown_at_its_first_occurrence() -> None:
    worker = '(W pid=12) Traceback (most recent call last):\n(W pid=12)   File "w.py", line 1\n(W pid=12) OSError: no disk\n'
    driver = 'Traceback (most recent call last):\n  File "d.py", line 1\nray.exceptions.RayTaskError(OSError): ray::W.f() (pid=12)\n'
    cause = first_cause(f"{worker}{driver}OSError: no disk\n")
    assert cause is not None
    assert (cause.process, cause.number) == ("W pid=12", 3)


@pytest.mark.slow
def test_long_message_is_shortened() -> None:
    long = (
        "Traceback (most recent call last):\n"
        + '  File "x.py", line 1\n' * 20_000
        + "ValueError: "
        + "x" * 9000
    )
    cause = first_cause(long)
    assert cause is not None
    assert len(cause.words) == 500


def test_server_of_the_job_failed_before_its_client() -> None:
    server = "".join(
        f"(Server pid=7) {line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/env/lib/python3.11/site-packages/engine/serving.py", line 8, in answer',
            "    return found['version']",
            "KeyError: 'version'",
        )
    )
    client = "".join(
        f"(Client pid=9) {line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/env/lib/python3.11/site-packages/trainer/client.py", line 3, in ask',
            "RuntimeError: the request failed with status code 500",
        )
    )
    failed, refused = first_cause(server + client), first_cause(server + client.replace("500", "404"))
    assert failed is not None
    assert refused is not None
    assert failed.words == "KeyError: 'version'"
    assert refused.words == "RuntimeError: the request failed with status code 404"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("ninja: build stopped: subcommand failed.", "Killed: ninja: build stopped: subcommand failed."),
        (
            "make[2]: *** [Makefile:12: csrc.o] Error 137",
            "Killed: make[2]: *** [Makefile:12: csrc.o] Error 137",
        ),
        ("the script ended", "Killed"),
    ],
)
def test_compiler_killed_in_a_build_is_named_with_it(end: str, words: str) -> None:
    cause = first_cause(f"g++ -c csrc.cc\nKilled\nFAILED: csrc.o\n{end}\n")
    assert cause is not None
    assert cause.words == words
