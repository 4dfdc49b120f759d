"""Paths of repository files that several tests read."""

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
MACHINES = TESTS / "machines"
SUPPORT = TESTS / "support"
