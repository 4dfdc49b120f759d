"""Advice from the kind of an exception alone, from figures of memory, and from the folder that is refused."""

from __future__ import annotations

import pytest
from support.logs.raised import PACKAGES, remedy

from verl_doctor.toolkit.logs.advice.caches import moved_by
from verl_doctor.toolkit.logs.advice.memory import held
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.python_errors import Raised

LIBRARY = f"{PACKAGES}/somelib/io.py"
JOB = "/home/me/job/data.py"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free. "


@pytest.mark.parametrize(
    ("error", "place", "expected"),
    [
        ("OSError: [Errno 99] Cannot assign requested address", LIBRARY, "address does not belong to this machine"),
        ("OSError: [Errno 36] File name too long: '/ckpt/a-very-long-name'", LIBRARY, "/ckpt/a-very-long-name is too long"),
        ("OSError: [Errno 18] Invalid cross-device link: '/a/x' -> '/b/x'", LIBRARY, "different file systems"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", JOB, "parsed as JSON is empty"),
        ("json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 9)", JOB, "read it line by line"),
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", LIBRARY, "not text in UTF-8"),
        ("requests.exceptions.ReadTimeout: HTTPConnectionPool(host='judge', port=8080): Read timed out.", LIBRARY, "curl judge:8080"),
        ("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", LIBRARY, "the server closed the connection"),
        ("AttributeError: Can't get attribute 'Row' on <module '__main__' (built-in)>", LIBRARY, "into a module that both import"),
        ("RecursionError: maximum recursion depth exceeded", LIBRARY, "without an end"),
        ("IndexError: list index out of range", JOB, "a list is empty"),
        ("ZeroDivisionError: division by zero", JOB, f"before {JOB.rpartition('/')[2]}:12"),
        ("AttributeError: 'Mine' object has no attribute 'made'", JOB, "update it (git pull)"),
    ],
)  # fmt: skip
def test_kind_of_an_exception_shows_what_usually_helps(error: str, place: str, expected: str) -> None:
    assert expected in remedy(error, place)


def test_kind_is_asked_last() -> None:
    error = "KeyError: 'answer'"
    assert "give every row answer" in remedy(error, (JOB, "gold = row['answer']"))
    assert "not in the table" in remedy(error, (JOB, "gold = table[name]"))


def test_program_that_is_started_is_no_file() -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'"
    assert "the program ffmpeg is not on the PATH" in remedy(error, JOB, "/usr/lib/python3.11/subprocess.py")
    assert "ffmpeg does not exist" in remedy(error, JOB)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("AttributeError: 'str' object has no attribute 'size'", "return_dict=False"),
        ("AttributeError: 'NoneType' object has no attribute 'image_processor'", "no processor of the model was found"),
    ],
)  # fmt: skip
def test_object_of_another_kind_than_the_code_expects(error: str, expected: str) -> None:
    assert expected in remedy(error, f"{PACKAGES}/llamafactory/data/mm_plugin.py")


def raised(text: str) -> Raised:
    name, _, message = text.partition(": ")
    return Raised(name, message, next(iter(log_lines(text))), 1)


def test_memory_that_others_hold_and_that_lies_in_unusable_blocks() -> None:
    alone = held(raised(f"{OUT_OF_MEMORY}Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."))  # fmt: skip
    assert alone == ""
    others = held(raised(f"{OUT_OF_MEMORY}Process 71 has 40.50 GiB memory in use. Process 72 has 512.00 MiB memory in use. Including non-PyTorch memory, this process has 38.00 GiB memory in use."))  # fmt: skip
    assert "other processes hold 41 of the 80 GiB" in others
    pieces = held(raised(f"{OUT_OF_MEMORY}Of the allocated memory 45.00 GiB is allocated by PyTorch, and 30.00 GiB is reserved by PyTorch but unallocated."))  # fmt: skip
    assert "30 GiB lie in blocks" in pieces
    old = held(raised("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 20.00 GiB already allocated; 1.00 GiB free; 37.00 GiB reserved in total by PyTorch)"))  # fmt: skip
    assert "17 GiB lie in blocks" in old
    assert held(raised("MemoryError: no figures")) == ""


def test_process_that_failed_in_a_container_is_not_another_one() -> None:
    own = "Of the allocated memory 74.79 GiB is allocated by PyTorch, with 38.04 MiB allocated in private pools (e.g., CUDA Graphs), and 811.92 MiB is reserved by PyTorch but unallocated."
    held_by = "Process 235237 has 946.00 MiB memory in use. Process 235597 has 78.37 GiB memory in use. "
    assert held(raised(f"{OUT_OF_MEMORY}{held_by}{own}")) == ""
    shared = "Process 71 has 40.50 GiB memory in use. Process 72 has 38.00 GiB memory in use. Of the allocated memory 36.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
    assert "other processes hold 40 of the 80 GiB" in held(raised(f"{OUT_OF_MEMORY}{shared}"))


@pytest.mark.parametrize(
    ("error", "variable"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/afs/u/me/.local/share/wandb/artifacts/x'", "WANDB_DATA_DIR"),
        ("OSError: [Errno 28] No space left on device: '/home/kim/.cache/huggingface/hub/x'", "HF_HOME"),
        ("OSError: [Errno 30] Read-only file system: '/home/me/.triton/cache/a'", "TRITON_CACHE_DIR"),
        ("OSError: [Errno 122] Disk quota exceeded: '/tmp/torchinductor_me/x'", "TORCHINDUCTOR_CACHE_DIR"),
        ("PermissionError: [Errno 13] Permission denied: '/tmp/other/x'", "TMPDIR"),
        ("PermissionError: [Errno 13] Permission denied: '/data/mine'", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/home/kim/.cache/huggingface/x'", ""),
    ],
)  # fmt: skip
def test_variable_that_moves_the_refused_folder(error: str, variable: str) -> None:
    told = moved_by(raised(error))
    assert told.startswith(f"set {variable}") if variable else told == ""


def test_members_of_other_releases_in_the_job_are_no_fault_of_its_code() -> None:
    error = "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_dora'"
    assert "correct" not in remedy(error, ("/home/me/proj/train.py", "config = LoraConfig(use_dora=True)"))


def test_key_that_is_missing_where_the_job_reads_it_belongs_to_the_configuration() -> None:
    error = "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data\n    full_key: task.data\n    object_type=dict"
    assert "add task.data=VALUE" in remedy(error, ("/home/me/proj/task.py", "path = self.cfg.data"))


def test_package_that_computes_names_the_one_which_called_it() -> None:
    torch = (f"{PACKAGES}/torch/optim/adam.py", "raise ValueError(message)")
    verl = (f"{PACKAGES}/verl/workers/config/optimizer.py", "return optimizer_cls(parameters)")
    told = remedy("RuntimeError: these betas are odd", verl, torch)
    assert "what verl gives torch at optimizer.py:12 (return optimizer_cls(parameters))" in told
    assert "pip install" not in told
