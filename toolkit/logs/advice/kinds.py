"""Advice on an exception from its kind alone, where nothing more specific is known.

It names what usually raises the exception, and what to look at.

Errors of the operating system are recognised by their number, those of clients and parsers by their class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.logs.advice.places import LONGEST, NONE, Place
from verl_doctor.toolkit.logs.python_errors import Raised

_Kind = tuple[re.Pattern[str], re.Pattern[str], str]
_NUMBER = re.compile(r"\[Errno (-?\d+)\]|\bos error (\d+)\b|errno[:=] ?(\d+)")
_PATH = re.compile(r"['\"](/[^'\"]+|[A-Za-z0-9_.][^'\" ]*/[^'\"]+)['\"]")
_HOST = re.compile(
    r"host=['\"]([\w.-]+)['\"],? port=(\d+)|\b(?:to|at|host|addr=)\s?['\"]?(?:https?://|tcp://)?("
    r"[\w.-]+):(\d{2,5})\b|https?://([\w.-]+)(?::(\d+))?"
)
# What helps with an error of the operating system, by its number (Linux). {path} is the path that the message
# names, or words for it.
_BY_NUMBER = {
    1: (
        "the kernel or the container forbids this call: allow it (--privileged or --cap-add, --security-opt "
        "seccomp=unconfined for pidfd, ptrace, NUMA and io_uring), or run as the owner of {path}"
    ),
    5: (
        "the disk or network file system under {path} failed while it was read or written: read dmesg of "
        "this node, try the same file on another node, and write it elsewhere"
    ),
    6: (
        "the device does not exist on this node: compare ls -l /dev/nvidia* (/dev/davinci*, /dev/kfd) on "
        "the host and in the container"
    ),
    8: (
        "{path} is not a program for this machine: built for another processor (x86 on ARM), cut short, or "
        "a script without #!"
    ),
    16: (
        "{path} is in use: another process holds it (fuser -v, lsof); files .nfs... stay until the process "
        "that has them open ends"
    ),
    18: (
        "source and target lie on different file systems, between which a file cannot be renamed or linked: "
        "put the temporary folder (TMPDIR, UV_CACHE_DIR, HF_HOME) on that of the target"
    ),
    20: (
        "a part of {path} that should be a folder is a file: remove or rename it, or correct the setting "
        "that names it"
    ),
    22: (
        "the file system or the device does not accept this call: try another file system than the "
        "network's one under {path} (locks, mmap, O_DIRECT, names with a colon), and check the numbers that "
        "are passed"
    ),
    23: "the whole machine has too many open files: raise sysctl fs.file-max",
    26: (
        "{path} is being executed or written by another process: write to another name and rename it, and "
        "do not install while jobs run from the same environment"
    ),
    27: "the file system or ulimit -f limits the size of one file: write smaller files, or elsewhere",
    31: "too many links, or folders in one folder: spread the files over more folders",
    32: "the program at the other end of the pipe ended first: its own error is the cause",
    36: (
        "the name of {path} is too long for the file system (255 bytes): use a shorter experiment name, run "
        "name or cache folder; hyperparameters do not belong in it"
    ),
    39: (
        "{path} is not empty: another process writes there at the same time (several ranks or runs that "
        "clean the same folder), or files .nfs... of open files remain: let one rank remove it, or use "
        "another folder"
    ),
    40: "a chain of symbolic links at {path} leads back to itself: correct it (namei -l shows it)",
    75: (
        "a number is too large for the call: a process id, size or time from a 64-bit system in a 32-bit "
        "field"
    ),
    87: "the system has too many users, or a quota of them is used up",
    95: (
        "the file system under {path} does not support this call (locks, links, xattr, mmap): use a local "
        "disk"
    ),
    97: (
        "this machine has no IPv6, or the address is of another kind: give an IPv4 address or host name, "
        "and set NCCL_SOCKET_FAMILY=AF_INET or GLOO_SOCKET_IFNAME to the interface"
    ),
    99: (
        "the address does not belong to this machine: the address given to bind (--host, --node-ip-address, "
        "MASTER_ADDR, VLLM_HOST_IP) is another node's, or the host's inside a container: use --network "
        "host, an address that ip -br addr shows, or 0.0.0.0; if it occurs after many connections, the "
        "ephemeral ports are used up (keep connections open)"
    ),
    100: (
        "the interface is down: ip -br addr shows which is up; name that one in NCCL_SOCKET_IFNAME and "
        "GLOO_SOCKET_IFNAME"
    ),
    101: (
        "this node has no route to that network: check ip route, the proxy variables and whether compute "
        "nodes may reach the internet; otherwise download on a login node and set HF_HUB_OFFLINE=1, and "
        "WANDB_MODE=offline"
    ),
    103: (
        "the connection was aborted by the network: retry with fewer connections at a time, and read the "
        "other side's log"
    ),
    107: "the mount under {path} has lost its server (FUSE, SSHFS, S3): mount it again on this node",
    108: "the mount under {path} has lost its server, or the peer has closed: mount it again on this node",
    112: (
        "the host is down or drops packets: ping it from this node, and check that it is the address that "
        "the others use"
    ),
    115: "the connection was not made in time: the port is blocked or nobody listens there",
    116: (
        "the file behind {path} was replaced or removed on the server of the network file system while it "
        "was open: keep the environment and checkpoints unchanged while jobs run from them, or mount the "
        "share again; start again"
    ),
    121: "the device or its driver failed: read dmesg of this node, and try another node",
    122: (
        "the quota of the user or the project is used up (quota -s, lfs quota, beegfs-ctl): free space or "
        "inodes, or write elsewhere (HF_HOME, TMPDIR, checkpoints)"
    ),
    -2: (
        "the name cannot be resolved: check it for typing errors and empty variables, and getent hosts NAME "
        "on this node; use an address, or add it to /etc/hosts"
    ),
    -3: (
        "DNS did not answer: check /etc/resolv.conf and the network of the node or container (getent hosts "
        "NAME), then start again; without internet, download first and set HF_HUB_OFFLINE=1"
    ),
}
# Exceptions by which code fails that was written for other releases of what it calls.
_OF_RELEASES = frozenset({"AttributeError", "TypeError", "NameError"})
_BUILT_IN = re.compile(r"'(?:str|bytes|list|dict|tuple|set|int|float|bool|NoneType)'")
_OTHERS = (
    "if the code is that of another project and unchanged, update it (git pull) and install the releases "
    "that its README and requirements name: it was written for others"
)
_AT_SERVER = (
    "check from the node of this process that the server runs and listens there (curl {host}), that no "
    "proxy stands between (no_proxy), and read its own log: it may have ended, still be loading, or be "
    "overloaded (fewer requests at a time, a longer timeout)"
)
_UNREAD = (
    "{what} is empty, cut short or of another format: look at its first and last bytes (head -c 200, wc "
    "-c): an error page in HTML, a pointer of git-lfs, or a file that another process is still writing; "
    "create it again"
)
# Kinds of exceptions, what their messages must contain, and what usually helps. The first that fits counts.
_KINDS: tuple[tuple[str, str, str], ...] = (
    (
        "UnicodeDecodeError",
        "",
        (
            "the file that is read is not text in UTF-8: a compressed or binary file, another encoding, or "
            "a file of macOS (._name): file NAME shows which; leave it out, or convert it (iconv -t utf-8)"
        ),
    ),
    (
        "UnicodeEncodeError",
        "",
        (
            "set PYTHONUTF8=1 and LANG=C.UTF-8 for the job and its workers: their output is not UTF-8; "
            "unpaired surrogates in texts of the data must be removed (encode with errors='ignore')"
        ),
    ),
    (
        "JSONDecodeError",
        "Extra data",
        "the file holds several JSON values: read it line by line (jsonl), or remove what follows the first",
    ),
    (
        "JSONDecodeError",
        "",
        _UNREAD.format(what="the text that is parsed as JSON")
        + (
            "; if it is the response of a server or a model, print its status and text, and handle one that "
            "is not JSON"
        ),
    ),
    (
        "UnpicklingError|EOFError",
        "Ran out of input|pickle data was truncated|invalid load key",
        _UNREAD.format(what="the file that is loaded"),
    ),
    (
        "PicklingError|AttributeError|TypeError",
        r"[Cc]an't (?:pickle|get local)|cannot pickle|not picklable|Could not serialize",
        (
            "what is sent to another process cannot be pickled (a lambda, an inner function, a lock, an "
            "open file or connection, a CUDA or Ray object): define functions at the top of a module, "
            "create connections inside the worker, or set the number of workers of the data loader to 0"
        ),
    ),
    (
        "AttributeError",
        r"Can't get attribute '\w+' on <module",
        (
            "an object was pickled with a class of the main script, which the other process does not have: "
            "move the class into a module that both import, and put its folder on PYTHONPATH of the workers"
        ),
    ),
    (
        "RecursionError",
        "",
        (
            "a structure contains itself, or a function calls itself without an end: the repeated frames "
            "show which; of a tokenizer, one of its special tokens (unk_token) is not in the vocabulary: "
            "use the tokenizer's own files and the transformers that wrote them"
        ),
    ),
    (
        "OperationalError|DatabaseError",
        r"locked|unable to open database|disk I/O|malformed",
        (
            "a database of SQLite lies on a network file system, in a folder that cannot be written, or was "
            "damaged when a process was killed: put it on a local disk (the folder of the tracker or "
            "cache), give each process its own, or remove it"
        ),
    ),
    (
        "Timeout",
        r"\block\b",
        (
            "another process holds the lock file, or a killed one left it on a network file system: make "
            "sure that none is running, remove the file, and put the cache on a local disk"
        ),
    ),
    (
        "DecompressionBombError",
        "",
        (
            "shrink images of the data above 178 million pixels, or raise PIL.Image.MAX_IMAGE_PIXELS in the "
            "data set's code"
        ),
    ),
    (
        "UnidentifiedImageError",
        "",
        "an image of the data is damaged or no image: open each once beforehand and leave out what fails",
    ),
    (
        "AuthenticationError|PermissionDeniedError|Unauthorized|AuthenticationException",
        "",
        (
            "the service refuses the key: set the key that it expects in the environment of the process "
            "that calls it (workers get it through env_vars of the runtime_env), and check the address: a "
            "local server takes any key unless it was started with --api-key"
        ),
    ),
    (
        "ServerDisconnectedError|RemoteDisconnected|RemoteProtocolError|ClientPayloadError|IncompleteRead|ChunkedEncodingError|ProtocolError",
        "",
        "the server closed the connection: " + _AT_SERVER,
    ),
    (
        "(?:Read|Connect|Pool|Write)?Timeout|ReadTimeoutError|ConnectTimeoutError|APITimeoutError|ServerTimeoutError|ConnectError|ConnectionError|ClientConnectorError|ClientOSError|APIConnectionError|NewConnectionError|MaxRetryError|ConnectionRefusedError|ConnectionResetError|URLError",
        "",
        _AT_SERVER,
    ),
    (
        "HTTPError|HTTPStatusError|InternalServerError|APIStatusError|ClientResponseError|HfHubHTTPError",
        r"\b50[0234]\b",
        "the server failed: " + _AT_SERVER,
    ),
    (
        "TimeoutExpired",
        "",
        (
            "the program that was started did not end in time: run its command by hand on this node, and "
            "raise the timeout if it is only slow"
        ),
    ),
    (
        "TimeoutError",
        "",
        (
            "what this process waits for did not come in time: look for an earlier error, or the last line, "
            "of the process that should answer; raise the timeout only if that one is working"
        ),
    ),
    (
        "FloatingPointError",
        "",
        (
            "a number became NaN or infinite: use bfloat16 instead of float16, a lower learning rate, "
            "gradient clipping, and look for empty or masked rows in the batch"
        ),
    ),
    (
        "ZeroDivisionError",
        "",
        (
            "a count by which it divides is 0: an empty data set or batch, no valid token in the mask, no "
            "steps (total_training_steps, warm-up), or a size that is smaller than the number of ranks; "
            "print it before this line"
        ),
    ),
    (
        "OutOfMemoryError|MemoryError",
        "",
        (
            "less memory: smaller batches, shorter sequences, or more devices; end what else holds memory "
            "there (nvidia-smi)"
        ),
    ),
    (
        "LookupError",
        "NLTK",
        (
            "download NLTK's data once where all nodes find it (python -m nltk.downloader -d DIR NAME, "
            "NLTK_DATA=DIR)"
        ),
    ),
    (
        "InvalidGitRepositoryError|GitCommandError",
        "",
        (
            "run it in a git checkout, or switch off what records the commit; git config --global --add "
            "safe.directory DIR if another user owns it"
        ),
    ),
)
# The same for exceptions by which code fails, which another release of a package may not do.
_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        "StopIteration",
        "",
        (
            "the data ran out: fewer rows than one batch of all ranks needs, or an iterator that was "
            "consumed before: use a smaller batch, or create it again for each epoch"
        ),
    ),
    (
        "IndexError",
        r"list index out of range|tuple index|string index|index out of range|out of bounds",
        (
            "a list is empty or shorter than the code expects: look for an empty response, row, list of "
            "images or answers, or fewer devices or ranks than are indexed, and handle that case"
        ),
    ),
    (
        "AttributeError|TypeError",
        NONE,
        (
            "a value is None: a function returned nothing (no match, an empty response, a failed look-up), "
            "an optional package is missing, or a setting is left empty; handle that case where it is used, "
            "or set it"
        ),
    ),
    (
        "KeyError",
        "",
        (
            "the key is not in the table: print its keys before this line; rows of the data, a response, a "
            "configuration or a checkpoint of another release lack it"
        ),
    ),
)


def _read(kinds: Sequence[tuple[str, str, str]]) -> tuple[_Kind, ...]:
    return tuple((re.compile(names), re.compile(words), help_) for names, words, help_ in kinds)


_OUTSIDE, _INSIDE = _read(_KINDS), _read(_FAILURES)


def of_system(raised: Raised, place: Place) -> str:
    """Return what usually helps with an error of the operating system, a client or a parser, else ""."""
    message = raised.message[:LONGEST]
    if (number := _NUMBER.search(message)) is not None:
        code = int(next(filter(None, number.groups())))
        if code in _BY_NUMBER:
            found = _PATH.search(message)
            return _BY_NUMBER[code].format(path=found[1] if found else "the path")
    return _fitting(_OUTSIDE, raised, place).replace("{host}", _host(message))


def of_failure(raised: Raised, place: Place) -> str:
    """Return what usually helps with an exception by which code fails.

    "" for one of which the kind alone reveals nothing.
    """
    found = _fitting(_INSIDE, raised, place)
    is_of_release = raised.name in _OF_RELEASES and _BUILT_IN.search(raised.message) is None
    if not found and place.words and not place.package and is_of_release:
        return _OTHERS
    return found


def _fitting(kinds: Sequence[_Kind], raised: Raised, place: Place) -> str:
    message = raised.message[:LONGEST]
    fits = (help_ for names, words, help_ in kinds if names.fullmatch(raised.name) and words.search(message))
    return next(fits, "").replace("this line", place.at or "this line")


def _host(message: str) -> str:
    """Return the address that a message names, or a placeholder."""
    if (found := _HOST.search(message)) is None:
        return "http://HOST:PORT"
    host, port = found[1] or found[3] or found[5], found[2] or found[4] or found[6]
    return f"{host}:{port}" if port else host
