"""Has verl validate a job's configuration. Runs under the target's interpreter, with its Hydra and the verl that is named.

It is handed over as text. Called with a token and a JSON object: `path` is the folder that holds verl, `folder` and `name` lead to
the configuration, `overrides` are the words of the command. verl's own validation is `verl.utils.config.validate_config` from
0.6.0 on, a method of the trainer before.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn


def answer(token: str, **said: str) -> NoReturn:
    """Say it behind the token, which nobody else can print, and end at once: what verl has begun may hang at exit."""
    sys.stdout.flush()
    print(f"\n{token}{json.dumps(said)}", flush=True)
    os._exit(0)


def text_of(error: BaseException) -> str:
    """What an exception says: its text, or the line of a bare `assert`."""
    if str(error):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else ""


def prepared(request: dict[str, Any]) -> Callable[[], object]:
    """Compose the configuration, and find the validation in verl."""
    from hydra import compose, initialize_config_dir  # noqa: PLC0415

    with initialize_config_dir(config_dir=request["folder"], version_base=None):
        config: Any = compose(config_name=request["name"], overrides=request["overrides"])
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    critic = config.critic.get("enable")
    given = {
        "config": config,
        "use_reference_policy": bool(actor.get("use_kl_loss")) or bool(algorithm.get("use_kl_in_reward")),
        "use_critic": algorithm.adv_estimator == "gae" if critic is None else bool(critic),
    }
    try:
        from verl.utils.config import validate_config  # noqa: PLC0415
    except ImportError:
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer  # noqa: PLC0415

        trainer: Any = RayPPOTrainer
        return lambda: trainer._validate_config(types.SimpleNamespace(**given))  # noqa: SLF001 - no other name for it
    return lambda: validate_config(**given)


def main(token: str, request: dict[str, Any]) -> None:
    """Validate, and tell how far it came: "import", "validation" or "accepted"."""
    sys.argv = ["verl"]
    sys.path.insert(0, request["path"])
    try:
        validate = prepared(request)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
        answer(token, stage="import", kind=type(error).__name__, text=text_of(error))
    try:
        validate()
    except (Exception, SystemExit) as error:  # noqa: BLE001
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "verl" in frame.filename]
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        answer(token, stage="validation", kind=type(error).__name__, text=text_of(error), place=place)
    answer(token, stage="accepted")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
