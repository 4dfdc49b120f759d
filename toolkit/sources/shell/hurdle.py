"""The kinds of obstacles in a script that decide how it goes on. Facts name them: this imports nothing."""

from __future__ import annotations

from typing import Literal

Hurdle = Literal["", "status", "nothing found", "startup file", "blank", "alias", "output folder", "source"]
"""What bash stumbles over, where that decides how the script goes on.

"status": the command has done its work, and returns 1, as `read` does at the end of its input and `((N++))`
while N is 0. "nothing found": so does an `ls` or a `grep` of which a variable gets the output. "alias": bash
expands none in scripts. "startup file": a file of the user's shell, such as ~/.bashrc, is sourced and does
not exist. "blank": a blank before the sign of an assignment. "output folder": the folder of a file to which
output goes does not exist. "source": neither does the file that Python opens as the source of a program.
"""
