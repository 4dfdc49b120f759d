"""Launch scripts for examples."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.launch import Command, Kind, Launch, Word

SCRIPT = "/home/me/run.sh"
COMMAND = Command("verl.trainer.main_ppo", (Word("trainer.nnodes=1", SCRIPT, 3),), SCRIPT, 2)
FILES: tuple[tuple[str, Kind], ...] = ((SCRIPT, "shell script"),)
GOOD = Launch(FILES, command=COMMAND)
IMAGE: tuple[tuple[str, Kind], ...] = (("/home/me/Dockerfile", "Dockerfile"),)
