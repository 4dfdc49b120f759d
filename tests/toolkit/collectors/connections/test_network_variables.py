"""Where the value comes from that the job's workers see."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.connections.network_variables import (
    GLOO,
    NetworkVariables,
    VariableValue,
    network_variables,
)
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Launch, Setting
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    WITHHELD,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

SHELL = Variables({GLOO: "eth0"})
SCRIPT = Launch((("run.sh", "shell script"),), settings=(Setting(GLOO, "eth1", "run.sh", 3),))
NONE = Absent("none was named")
NOTHING = Machine(environ={}, root=Path("/nowhere"))


def workers(value: Value, path: str = "", line: int = 0) -> EffectiveEnvironment:
    return EffectiveEnvironment(
        (Effective(GLOO, Value("eth0"), (value,), (value,), "the raylet", path, line),)
    )


def seen(
    variables: Variables = SHELL,
    launch: Launch | Unknown = SCRIPT,
    environment: EffectiveEnvironment | Unknown = NONE,
    machine: Machine = NOTHING,
) -> tuple[VariableValue, ...]:
    found = network_variables.collect(variables, launch, environment, machine)
    assert isinstance(found, NetworkVariables)
    return found.given


def test_every_source_counts_without_an_effective_environment() -> None:
    both = (VariableValue(GLOO, "eth1", "run.sh", "run.sh", 3), VariableValue(GLOO, "eth0"))
    assert seen() == both
    assert seen(environment=workers(Value(undetermined=WITHHELD))) == both


def test_removed_and_typed_variables_are_applied() -> None:
    gone = Launch((), settings=(Setting(GLOO, None, "run.sh", 3, removed=True),))
    typed = Launch((), settings=(Setting(GLOO, "eth1", COMMAND_LINE, 1),))
    assert seen(launch=gone) == ()
    assert seen(Variables(), typed) == (VariableValue(GLOO, "eth1", COMMAND_LINE),)


def test_variable_missing_from_the_raylet_is_missing_from_workers() -> None:
    assert seen(environment=workers(Value())) == ()
    assert seen(environment=EffectiveEnvironment()) == ()


def test_line_that_sets_the_value_of_the_workers_is_named() -> None:
    assert seen(environment=workers(Value("eth1"))) == (VariableValue(GLOO, "eth1", "run.sh", "run.sh", 3),)


def test_value_only_in_the_raylet_is_reported() -> None:
    assert seen(environment=workers(Value("ib0"))) == (VariableValue(GLOO, "ib0", "the raylet"),)
    found = seen(launch=NONE, environment=workers(Value("ib0"), "env.yaml", 2))
    assert found == (VariableValue(GLOO, "ib0", "env.yaml", "env.yaml", 2),)


def test_nccl_config_files_have_lower_priority_than_variables(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text(
        "# the fabric\nNCCL_SOCKET_IFNAME==bond0\nNCCL_IB_HCA=mlx5\nNCCL_IB_GID_INDEX = 3\nNCCL_DEBUG=WARN\n"
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("NCCL_IB_HCA=mlx5_0\n")
    machine = Machine(environ={"HOME": "/home"}, root=tmp_path)
    shell = Variables({"NCCL_IB_DISABLE": "1"})
    assert seen(shell, NONE, machine=machine) == (
        VariableValue("NCCL_SOCKET_IFNAME", "=bond0", "/etc/nccl.conf", "/etc/nccl.conf", 2),
        VariableValue("NCCL_IB_HCA", "mlx5_0", "/home/.nccl.conf", "/home/.nccl.conf", 1),
        VariableValue("NCCL_IB_DISABLE", "1"),
    )
    (found,) = seen(Variables({"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "mlx5"}), NONE, machine=machine)[
        :1
    ]
    assert found == VariableValue("NCCL_SOCKET_IFNAME", "eth0")
