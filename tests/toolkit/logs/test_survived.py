"""An error that a run survived is not the cause when repeated."""

from __future__ import annotations

import io

import pytest
from support.logs.builder import DRIVER_SAW_IT, spoken, traceback

from verl_doctor.toolkit.logs.diagnosis import Reading, read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.logged_error import LoggedError

RUNNER = "(TaskRunner pid=7131) "
REWARD = "(RewardWorker pid=771) "
SANDBOX = spoken(
    f"sandbox: {traceback('ModuleNotFoundError: No module named vllm', place='/tmp/a/s.py')}", REWARD
)
SANDBOX = SANDBOX.replace("named vllm", "named 'vllm'")
CTRL_C = f"^C{traceback('KeyboardInterrupt')}"


def step(number: int) -> str:
    return f"{RUNNER}step:{number} - actor/loss:0.1 - timing_s/step:9.5\n"


def judged(text: str) -> Reading:
    return read(excerpt(io.BytesIO(text.encode()).read).lines, "run.log")


def codes(reading: Reading) -> list[str]:
    return [cause.signature.code for cause in reading.causes if cause.signature is not None]


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize(
    "end", [CTRL_C, "slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-11-20T10:00:00 ***\n"]
)
def test_recurring_sandbox_error_did_not_end_the_run(steps: int, end: str) -> None:
    log = "".join(f"{SANDBOX}{step(at)}" for at in range(steps))
    found = judged(f"{log}{SANDBOX}{end}")
    assert (found.causes, found.error and found.error.kind) == ((), "ended")
    assert [hint.words for hint in found.hints] == ["ModuleNotFoundError: No module named 'vllm'"]


def test_recurring_error_does_not_explain_a_dead_worker() -> None:
    log = "".join(f"{SANDBOX}{step(at)}" for at in range(4))
    assert judged(f"{log}{SANDBOX}{DRIVER_SAW_IT}").causes == ()


def test_error_without_steps_is_the_cause() -> None:
    assert codes(judged(f"{SANDBOX}{SANDBOX}{DRIVER_SAW_IT}")) == ["LOG102"]


def test_final_error_counts_even_if_survived_before() -> None:
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB."
    caught = spoken(traceback(memory.format("2.00")), "(WorkerDict pid=4711) ")
    log = f"{caught}{step(1)}{step(2)}{step(3)}{traceback(memory.format('3.00'))}"
    assert codes(judged(log)) == ["LOG110"]


def test_error_raised_once_may_explain_a_dead_process() -> None:
    disk = spoken(traceback("OSError: [Errno 28] No space left on device"), "(Rollouter pid=12) ")
    assert codes(judged(f"{disk}{step(1)}{step(2)}{DRIVER_SAW_IT}")) == ["HOST106"]


def test_survived_line_outside_tracebacks_is_not_a_later_cause() -> None:
    message = f"{REWARD}write failed: No space left on device\n"
    found = judged(f"{message}{step(1)}{step(2)}{message}{DRIVER_SAW_IT}")
    assert found.causes == ()
    assert codes(judged(f"{message}{DRIVER_SAW_IT}")) == ["HOST106"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("/tmp/t/main.c:6:10: fatal error: Python.h: No such file or directory", "CUDA107"),
        ("/tmp/c.s: Fatal error: can't write 12 bytes: 'No space left on device'", "HOST106"),
        ("gcc: internal compiler error: Segmentation fault signal terminated program cc1", "LOG113"),
    ],
)
def test_compiler_message_counts_after_its_command(message: str, code: str) -> None:
    failed = "subprocess.CalledProcessError: Command '['gcc', 'main.c', '-lcuda']' returned non-zero exit status 1."
    command = spoken(traceback(failed), "(EngineCore_DP0 pid=5512) ")
    assert codes(judged(f"{command}{message}\n")) == [code]
    assert codes(judged(f"{message}\n{command}")) == [code]
    assert codes(judged(command)) == ["CUDA105"]


def test_many_survived_errors_are_compared_in_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[LoggedError] = []

    def counted(one: LoggedError, other: object) -> bool:
        compared.append(one)
        return one is other

    monkeypatch.setattr(LoggedError, "__eq__", counted)
    message = [f"{'x' * at} failed: No space left on device\n" for at in range(300)]
    found = read(list(log_lines(f"{''.join(message)}{step(1)}{step(2)}{DRIVER_SAW_IT}")), "run.log")
    assert [hint.times for hint in found.hints] == [len(message)]
    assert len(compared) <= 2 * len(message)


@pytest.mark.parametrize(("waited", "named"), [("90s", []), ("1m30s", []), ("10s", ["LOG221"])])
def test_pod_scheduled_later_did_not_fail(waited: str, named: list[str]) -> None:
    events = (
        "Normal  Scheduled  60s  default-scheduler  Successfully assigned rl/head to gpu1\n"
        f"Warning FailedScheduling {waited} default-scheduler 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n"
    )
    assert codes(judged(events)) == named


SERVED = 'INFO:     10.0.0.7:41236 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
REFUSED = "ERROR 11-11 10:00:10 [serving_chat.py:200] ValueError: This model's context holds 4096 tokens.\n"


@pytest.mark.parametrize(
    ("log", "is_named"),
    [
        (f"INFO:     Application startup complete.\n{REFUSED}{SERVED}{SERVED}", False),
        (f"INFO:     Application startup complete.\n{SERVED}{SERVED}{REFUSED}", True),
        # the server of a judge goes on while the training fails
        (f"INFO:     Application startup complete.\n{RUNNER}it trains\n{REFUSED}{SERVED}{SERVED}", True),
    ],
)
def test_server_that_responds_again_survived_a_refused_request(log: str, *, is_named: bool) -> None:
    assert (judged(log).first is not None) is is_named


STARTED = (
    "2026-11-29 08:00:00,000\tINFO worker.py:1927 -- Started a local Ray instance.\n"
    f"{RUNNER}{{'actor_rollout_ref': {{'actor': {{'strategy': 'fsdp'}}}}}}\n"
)
WAITS = (
    "(raylet) (autoscaler +5s) Warning: The following resource request cannot be scheduled right now: "
    "{'CPU': 60.0, 'GPU': 6.0}. This is likely due to all cluster resources being claimed by actors.\n"
)
OVER_TIME = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-29T10:00:00 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(
    "line",
    [
        "rm: cannot remove '/dev/shm/sem.abc': Permission denied\n",
        "run.sh: line 4: /usr/bin/rm: Argument list too long\n",
        "Warning  BackOff  2m  kubelet  Back-off pulling image\n",
    ],
)
def test_job_that_is_starting_has_not_failed(line: str) -> None:
    found = judged(f"{STARTED}{line}")
    assert (found.causes, found.error) == ((), None)


def test_script_may_end_with_a_failed_rm() -> None:
    assert judged("+ set -e\nrun.sh: line 4: /usr/bin/rm: Argument list too long\n").error is not None


def test_request_that_was_never_scheduled_explains_the_end() -> None:
    assert codes(judged(f"{STARTED}{WAITS}{OVER_TIME}")) == ["RAY111"]
    assert codes(judged(f"{STARTED}{WAITS}")) == ["RAY111"]


def test_message_of_a_cpp_exception_belongs_to_its_type() -> None:
    what = "{0}terminate called after throwing an instance of '{1}'\n{0}  what():  Operation not permitted\n"
    worker = "(WorkerDict pid=4711) "
    assert codes(judged(f"{STARTED}{what.format(worker, 'std::system_error')}{DRIVER_SAW_IT}")) == ["HOST102"]
    file = what.format(worker, "std::filesystem::filesystem_error")
    assert codes(judged(f"{STARTED}{file}{DRIVER_SAW_IT}")) == []


def test_warning_before_a_build_that_succeeded_is_no_failure() -> None:
    warned = "/venv/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before?\n"
    found = judged(f"{warned}Successfully built vllm\n")
    assert (found.causes, found.error) == ((), None)
    assert judged(warned).causes


def test_missing_git_repository_of_a_tracker_is_no_failure() -> None:
    found = judged(
        f"{RUNNER}ERROR:2026-03-02 11:56:34,332:git root error: Cmd('git') failed due to: exit code(128)\n"
    )
    assert (found.causes, found.error) == ((), None)
