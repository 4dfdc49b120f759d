"""The location of the doctor's own sources and data."""

from __future__ import annotations

from pathlib import Path

TOOLKIT = Path(__file__).parents[1]
DATA = TOOLKIT / "data"
