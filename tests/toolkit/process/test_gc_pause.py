"""The search for garbage is put off, and on again whatever happens."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from verl_doctor.toolkit.process.gc_pause import paused_collection


def test_collection_is_paused_inside_the_block_only():
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_objects_created_in_the_block_are_not_scanned_at_its_end():
    with paused_collection():
        made = [[] for _ in range(100_000)]
        waiting = gc.get_count()[0]
    assert waiting > 50_000
    assert gc.get_count()[0] < 50_000
    assert gc.is_tracked(made)
    assert not any(tracked is made for tracked in gc.get_objects(generation=0))


def test_exception_re_enables_collection():
    with pytest.raises(ValueError, match="x"), paused_collection():
        raise ValueError("x")
    assert gc.isenabled()


def test_collection_disabled_before_stays_disabled():
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_are_frozen_at_exit():
    program = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); "
    leaves = "from verl_doctor.toolkit.process.gc_pause import leave_it_at_exit; leave_it_at_exit()"
    ended = subprocess.run(
        [sys.executable, "-c", program + leaves], capture_output=True, text=True, timeout=300, check=True
    )
    assert ended.stdout == "True\n"
