"""What a rule proposes to leave out: an argument that does not exist, and the line that sets a variable."""

from __future__ import annotations

import pytest

from verl_doctor.checks.configuration.verl_would_refuse_config import verl_would_refuse_config
from verl_doctor.checks.host.socket_path_too_long import socket_path_too_long
from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.checks.shared.folders import roomy
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.limits_examples import an_h200_node
from verl_doctor.checks.variables.value_refused import value_refused
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised, Validation
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.unreadable_values import UnreadableValue, UnreadableValues
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Location, Rewrite

OPTIMIZER = "actor_rollout_ref.actor.optim.override_optimizer_config.eps_root"
LONG = "/scratch/users/somebody/projects/reinforcement/tmp"


def test_argument_that_the_optimizer_lacks_is_left_out() -> None:
    text = "AdamW.__init__() got an unexpected keyword argument 'eps_root'"
    raised = Raised(
        raised="TypeError",
        text=text,
        read_from="",
        condition="",
        keys=(OPTIMIZER,),
        phase="workers",
        library="torch.optim",
    )
    configuration = configured(f"+{OPTIMIZER}=1e-8")
    (finding,) = verl_would_refuse_config.judge(*configuration, Validation((raised,)))
    assert finding.remedy == f"leave out {OPTIMIZER}"
    assert finding.correction
    (rewrite,) = finding.correction.rewrites
    assert (rewrite.old, rewrite.new) == (f"+{OPTIMIZER}=1e-8", None)
    assert finding.fix == "script-word-changed"


@pytest.mark.parametrize(("value", "is_left_out"), [(LONG, True), (f"{LONG}/", True), ("/tmp/r", False)])
def test_line_that_names_a_long_folder_of_ray_is_left_out(value: str, is_left_out: bool) -> None:
    line = Setting(name="RAY_TMPDIR", value=value, path=SCRIPT, line=2)
    launch = Launch(FILES, settings=(line,))
    facts = (Folders((roomy(path=f"{LONG}/ray"),)), an_h200_node(), Variables({}))
    (finding,) = socket_path_too_long.judge(*facts, Unknown("not read"), launch)
    if not is_left_out:
        assert finding.fix == "short-ray-folder"
        return
    assert (finding.fix, finding.correction and finding.correction.rewrites) == (
        "script-word",
        (Rewrite(f"RAY_TMPDIR={value}", None, Location(SCRIPT, 2)),),
    )


def test_value_of_the_script_is_named_where_the_shell_has_another() -> None:
    refused = UnreadableValue(
        name="VLLM_PORT", program="vLLM", read_from="/env/envs.py:9", text="no number", phase="engine"
    )
    shell = Variables({"VLLM_PORT": "tcp://10.0.0.2:80"})

    def found(*, conditional: bool) -> tuple[str, Location | None]:
        line = Setting("VLLM_PORT", "tcp://10.0.0.1:80", SCRIPT, 3, conditional=conditional)
        unknown = Unknown("not read")
        launch = Launch(FILES, settings=(line,))
        values = UnreadableValues((refused,))
        (finding,) = value_refused.judge(unknown, shell, launch, unknown, unknown, values)
        return finding.message, finding.location

    message, location = found(conditional=False)
    assert ("VLLM_PORT=tcp://10.0.0.1:80" in message, location) == (True, Location(SCRIPT, 3))
    message, location = found(conditional=True)
    assert ("VLLM_PORT=tcp://10.0.0.2:80" in message, location) == (True, None)
