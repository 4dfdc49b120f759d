"""Launch scripts for examples."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.launch.launch import Command, Kind, Launch, Word

SCRIPT = "/home/me/run.sh"
COMMAND = Command(
    module="verl.trainer.main_ppo",
    words=(Word(text="trainer.nnodes=1", path=SCRIPT, line=3),),
    path=SCRIPT,
    line=2,
)
FILES: tuple[tuple[str, Kind], ...] = ((SCRIPT, "shell script"),)
GOOD = Launch(FILES, command=COMMAND)
IMAGE: tuple[tuple[str, Kind], ...] = (("/home/me/Dockerfile", "Dockerfile"),)
