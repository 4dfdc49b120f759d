"""Log signatures: each matches and ignores its examples, in every form of log."""

from __future__ import annotations

import re
from collections import Counter
from io import BytesIO
from itertools import permutations

import pytest
from support.logs.builder import (
    DRIVER_SAW_IT,
    ENGINE,
    OTHERS_WAITED,
    RANK,
    RAY,
    is_raised,
    told_by,
    traceback,
)
from support.logs.variants import VARIANTS

from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.logs.diagnosis import Reading, read
from verl_doctor.toolkit.logs.excerpt import excerpt, has_word
from verl_doctor.toolkit.logs.signature import Limit, Signature, signatures
from verl_doctor.toolkit.logs.signature import read as signatures_in

ALL = signatures()
OWN = "LOG"


def judged(log: str) -> Reading:
    """Judgement of a log."""
    return read(excerpt(BytesIO(log.encode()).read).lines, "run.log")


def named(reading: Reading) -> tuple[str, ...]:
    """The codes of the causes."""
    return tuple(cause.signature.code for cause in reading.causes if cause.signature is not None)


def shown(signature: Signature, log: str) -> list[str]:
    """The lines that the answer quotes for this fault."""
    reading = judged(log)
    return [
        line
        for told in (*reading.causes, *reading.hints)
        if told.signature is not None and told.signature.code == signature.code
        for line in told.lines
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({signature.kind for signature in ALL}))
def test_each_example_is_judged_as_stated(kind: str) -> None:
    for signature in ALL:
        for example in signature.examples if signature.kind == kind else ():
            for log in (example.log, traceback(example.log) if is_raised(example.log) else example.log):
                is_judged(signature, log, speaks=example.speaks)


def is_judged(signature: Signature, log: str, *, speaks: bool) -> None:
    reading = judged(log)
    found = named(reading)
    if speaks and signature.kind == "note":
        assert (found, [hint.signature for hint in reading.hints]) == ((), [signature]), log
    elif speaks:
        assert found[:1] == ((signature.code,) if signature.is_named else ()), log
    else:
        assert signature.code not in found or not signature.code, log


@pytest.mark.slow
def test_evidence_of_each_example_is_kept_in_a_long_log() -> None:
    lost = [
        (signature.code, example.log)
        for signature in ALL
        for example in signature.examples
        if signature.is_named and example.speaks and not any(map(has_word, shown(signature, example.log)))
    ]
    assert lost == []


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [RAY, RANK, ENGINE], ids=["Ray", "rank", "engine"])
def test_example_is_found_among_noise_and_consequences(prefix: str) -> None:
    examples = {
        signature.examples[0].log: signature.code
        for signature in ALL
        if signature.kind in {"cause", "weak"} and (prefix == RAY or is_raised(signature.examples[0].log))
    }
    wrong = {
        log: found
        for log, code in examples.items()
        if (found := named(judged(told_by(log, prefix)))[:1]) != (code,)
    }
    assert wrong == {}


@pytest.mark.slow
def test_example_is_found_in_the_wording_of_other_releases() -> None:
    wrong = {
        log: found
        for codes, log in VARIANTS
        if not set(found := named(judged(told_by(log, RAY)))[:1]) & set(codes.split())
    }
    assert wrong == {}


def test_every_code_belongs_to_a_rule_or_to_logs() -> None:
    known = {check.code for check in registry.load().checks}
    assert {
        signature.code for signature in ALL if signature.code and not signature.code.startswith(OWN)
    } <= known
    own = {signature.code for signature in ALL if signature.code.startswith(OWN)}
    assert not own & known


def test_every_signature_has_a_remedy_and_a_matching_example() -> None:
    for signature in ALL:
        assert any(example.speaks for example in signature.examples), signature.title
        assert signature.remedy or not signature.code, signature.title
    assert max(Counter((signature.code, signature.title) for signature in ALL).values()) == 1


Pattern = tuple[str | Limit, ...]


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """Whether the wide pattern matches whatever the narrow one does. A number with a bound covers itself alone."""
    words = [part for part in wide if isinstance(part, str)]
    if len(words) < len(wide):
        return wide == narrow
    parts = (part if isinstance(part, str) else f"{part.before}\n{part.after}" for part in narrow)
    return re.search(".*".join(map(re.escape, words)), "\n".join(parts), re.DOTALL) is not None


def superfluous(one: Signature) -> list[tuple[Pattern, Pattern]]:
    """Its patterns that decide nothing, each with the one that does it for them."""
    if one.whole:
        return []
    return [(narrow, wide) for narrow, wide in permutations(one.patterns, 2) if covers(wide, narrow)]


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        ('"disk is full", "is full"', 1),
        ('"no*room*left", "no*left"', 1),
        ('"no room", "no room"', 2),
        ('"took {>60} s", "took "', 1),
        ('"no*left", "left*no"', 0),
        ('"ab*cd", "bc"', 0),
        ('"took {>60} s", "took {>70} s"', 0),
    ],
)
def test_superfluous_pattern_is_detected(patterns: str, count: int) -> None:
    (one,) = signatures_in(f'[[signature]]\ntitle = "x"\ncode = "A101"\npatterns = [{patterns}]', "x.toml")
    assert len(superfluous(one)) == count


@pytest.mark.slow
def test_each_pattern_is_decisive() -> None:
    assert [(signature.title, each) for signature in ALL for each in superfluous(signature)] == []


ORDINARY = {
    "a look-up in the reward function": traceback("KeyError: 'answer'", place="/home/u/reward.py"),
    "shapes": traceback(
        "RuntimeError: The size of tensor a (4) must match the size of tensor b (8) at non-singleton dimension 1"
    ),
    "an assertion of the data set": traceback(
        "AssertionError: every row needs an image", place="/home/u/data.py"
    ),
    "not a number": traceback("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
    "an error of their own class": traceback("my_rewards.Timeout: the judge did not answer"),
    "a module of their own": traceback(
        "ModuleNotFoundError: No module named 'my_reward'", place="/home/u/run.py"
    ),
    "their own attribute": traceback(
        "AttributeError: 'MyTrainer' object has no attribute 'scores'", place="/home/u/t.py"
    ),
    "their own argument": traceback("TypeError: compute_score() got an unexpected keyword argument 'extra'"),
    "their own port": traceback("ValueError: port must be a number", place="/home/u/tool.py"),
    "their own file": traceback(
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/prompts.yaml'"
    ),
    "a test server of their own": traceback(
        "requests.exceptions.ReadTimeout: judge.example.org: Read timed out."
    ),
    "a division": traceback("ZeroDivisionError: division by zero", place="/home/u/reward.py"),
    "JSON of the model's answer": traceback(
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    ),
    "ended by a person": traceback("KeyboardInterrupt"),
    "ended by the batch system": "slurmstepd: error: *** JOB 42 ON n7 CANCELLED AT 2026-11-20T10:00:00 ***\n",
    "a late desync": OTHERS_WAITED,
    "only consequences": DRIVER_SAW_IT,
    "nothing at all": "",
}


HARMLESS = {
    "a port over IPv6": "[W socket.cpp:755] [c10d] The client socket has failed to connect to [n1]:34567 (errno: 97 - Address family not supported by protocol).",
    "NCCL without a plugin": "n1:1:2 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory",
    "no peer access": "n1:1:2 [0] NCCL INFO Could not enable P2P between dev 0 and dev 1",
    "an optional kernel": "Could not load library libibverbs.so.1. Error: libibverbs.so.1: cannot open shared object file",
    "an optional package": "No module named 'apex'; other kernels are used",
    "a backend that is passed over": "ERROR 11-20 10:00:00 [fa_utils.py:57] Cannot use FA version 2: only for compute capability >= 8",
    "Ray's metrics": "(raylet) [2026-11-20 10:00:00,000 E 9 9] (raylet) main.cc:1: Failed to establish connection to the metrics exporter agent.",
    "Ray's dashboard": "2026-11-20 10:00:00,100 ERROR services.py:1 -- Failed to start the dashboard , return code 1",
    "a disk with room": "(raylet) file_system_monitor.cc:1: /tmp/ray/s is over 95% full, available space: 82.5 GB; capacity: 1758.7 GB.",
    "pip": "server 0.8.5 requires client<1.27.0, but you have client 1.36.0 which is incompatible.",
    "a judge of the user's": 'INFO:httpx:HTTP Request: POST http://10.0.0.2:8000/judge "HTTP/1.1 503 Service Unavailable"',
}


@pytest.mark.parametrize("message", HARMLESS.values(), ids=HARMLESS)
def test_message_of_healthy_runs_is_never_the_cause(message: str) -> None:
    for behind in (
        "",
        DRIVER_SAW_IT,
        traceback("JudgeError: no", place="/home/u/r.py"),
        traceback("KeyboardInterrupt"),
    ):
        assert named(judged(f"{message}\n{behind}")) == ()


@pytest.mark.parametrize("log", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_fault_has_no_environment_cause(log: str) -> None:
    for message in (
        log,
        told_by(log),
        told_by(log, RAY),
        told_by(log, RANK, after=OTHERS_WAITED + DRIVER_SAW_IT),
    ):
        assert named(judged(message)) == ()


def test_warning_before_an_ordinary_fault_is_not_its_cause() -> None:
    before = (
        "(raylet) file_system_monitor.cc:1: /tmp/ray/session_1 is over 95% full, available space: 42 GB\n"
    )
    reading = judged(before + told_by("KeyError: 'answer'", RAY))
    assert reading.causes == ()
    assert [hint.signature.code for hint in reading.hints if hint.signature] == ["HOST106"]


def test_stronger_of_two_faults_is_the_first_cause() -> None:
    threads = f"{RAY}OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily unavailable\n"
    register = "(raylet) Some workers of the worker process(1) have not registered within the timeout.\n"
    assert named(judged(register + threads + DRIVER_SAW_IT))[:1] == ("HOST102",)
    assert named(judged(register + DRIVER_SAW_IT))[:1] == ("HOST117",)


def test_low_sequence_number_means_that_nothing_was_sent() -> None:
    assert named(judged(OTHERS_WAITED.replace("SeqNum=8123", "SeqNum=1"))) == ("NET130",)


def test_traceback_without_its_first_line_is_read() -> None:
    frames = traceback("KeyError: 'answer'", place="/home/u/reward.py").partition("\n")[2]
    assert named(judged(f"{RAY}OSError: [Errno 24] Too many open files\n{frames}")) == ()
    unknown = judged(frames.replace("KeyError: 'answer'", "JudgeError: no"))
    assert unknown.error is not None
    assert unknown.error.words == "JudgeError: no"


def test_last_line_of_a_traceback_counts_on_its_own() -> None:
    reading = judged("JudgeError: the judge did not answer\n")
    assert reading.error is not None
    assert reading.error.words == "JudgeError: the judge did not answer"


def test_compiler_message_beats_the_failure_of_its_command() -> None:
    command = traceback(
        "subprocess.CalledProcessError: Command '['gcc', '/tmp/t/main.c', '-o', '/tmp/t/cuda_utils.so', '-lcuda']' returned non-zero exit status 1."
    )
    header = "/tmp/t/main.c:2:10: fatal error: limits.h: No such file or directory\n"
    assert named(judged(command)) == ("CUDA105",)
    assert named(judged(header + command))[:1] == ("CUDA108",)
    assert named(judged("/usr/bin/ld: cannot find -lcuda\n" + command))[:1] == ("CUDA105",)


def test_torch_driver_warning_is_the_cause_if_no_gpu_was_found() -> None:
    warned = "/venv/torch/cuda/__init__.py:8: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
    assert named(judged(warned + traceback("RuntimeError: No CUDA GPUs are available")))[:1] == ("CUDA114",)
    assert named(judged(warned + traceback("KeyError: 'answer'"))) == ()
    assert named(judged(warned + STEP * 2)) == ()


NO_NVCC = "[TP0] Setup of the all-reduce failed with [Errno 2] No such file or directory: 'nvcc'"
STEP = "(TaskRunner pid=7) step:2 - actor/pg_loss:0.01 - critic/score/mean:0.25\n"


def test_error_survived_by_the_job_is_not_the_cause() -> None:
    assert named(judged(f"{NO_NVCC}\n")) == ("CUDA132",)
    assert named(judged(f"{NO_NVCC}\n{STEP}")) == ()
    assert named(judged(f"{NO_NVCC}. To silence this warning, say so.\n")) == ()
    assert named(judged(f"{STEP}{NO_NVCC}\n{STEP}{DRIVER_SAW_IT}")) == ("CUDA132",)


def test_fault_in_one_rank_is_not_hidden_by_later_errors_of_others() -> None:
    first = "".join(f"[rank3]: {line}\n" for line in traceback("KeyError: 'answer'").splitlines())
    later = "n1:1:2 [0] misc/socket.cc:1 NCCL WARN socketStartConnect: Connect to 10.0.0.3<4> failed : No route to host\n"
    assert named(judged(first + later + OTHERS_WAITED)) == ()
    assert named(judged(later + OTHERS_WAITED)) == ("NET105",)
    broke = "n1:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.3<4> with status=12\n"
    assert named(judged(first.replace("KeyError: 'answer'", "JudgeError: no") + broke + OTHERS_WAITED)) == ()
    assert named(judged(broke + OTHERS_WAITED)) == ("NET108",)


def test_initial_warning_of_a_run_cancelled_later_is_not_the_cause() -> None:
    warned = "(W pid=1) [W1120 10:00:00.0 ProcessGroupGloo.cpp:727] Warning: Unable to resolve hostname. Using the loopback address as fallback.\n"
    late = "slurmstepd: error: *** STEP 4.0 ON n7 CANCELLED AT 2026-11-20T12:00:00 ***\n"
    assert named(judged(warned + late)) == ("NET101",)
    assert named(judged(warned + STEP * 2 + late)) == ()
    assert named(judged(warned + late.replace(" ***\n", " DUE TO TIME LIMIT ***\n"))) == ("NET101",)
    assert named(judged(f"{NO_NVCC}\n{STEP}{STEP}{DRIVER_SAW_IT}")) == ()


def test_hint_is_the_first_cause_of_its_consequence() -> None:
    freed = "(W pid=1) INFO 11-20 10:00:00 [gpu_worker.py:1] Sleep mode freed 0.00 GiB memory, 70.11 GiB memory is still in use.\n"
    full = told_by("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", RAY)
    assert named(judged(freed + full)) == ("ENV115", "LOG110")
    assert named(judged(full + freed))[:1] == ("LOG110",)
    slow = "Loading safetensors checkpoint shards:  25% Completed | 1/4 [07:21<22:03, 441.10s/it]\n"
    assert named(judged(slow + traceback("KeyboardInterrupt"))) == ("LOAD114",)
    assert named(judged(slow + traceback("KeyError: 'answer'"))) == ()


def test_warning_continued_on_the_next_line_remains_a_warning() -> None:
    warned = f"{RAY}/venv/vllm/connections.py:8: RuntimeWarning: Failed to read commit hash:\n{RAY}No module named 'vllm._version'\n"
    assert named(judged(warned + traceback("JudgeError: no"))) == ()
