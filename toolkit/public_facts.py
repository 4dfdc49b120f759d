"""The facts that a plugin may build on.

These names are stable: `from verl_doctor.toolkit.public_facts import Launch`. Fields may be added; none is
removed within a minor release. Every other fact is internal, and may be renamed at any time.
"""

from __future__ import annotations

from verl_doctor.toolkit.collectors.api.uses import LibraryUses, VllmUses
from verl_doctor.toolkit.collectors.compiled.torch_build import TorchBuild
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.caches import Caches
from verl_doctor.toolkit.collectors.host.clock import Clock
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.mounts import Mounts
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.host.system import System
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, TorchTree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_files import DataFiles
from verl_doctor.toolkit.collectors.model.files import ModelFiles
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.sites import SitePlaces
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.network.rdma import Rdma
from verl_doctor.toolkit.collectors.packages.requirements import Requirements
from verl_doctor.toolkit.collectors.processes.processes import Processes
from verl_doctor.toolkit.collectors.ray.clusters import RayClusters
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends

__all__ = [
    "AttentionBackends",
    "Caches",
    "Clock",
    "Configuration",
    "DataFiles",
    "EffectiveEnvironment",
    "Folders",
    "Gpus",
    "HostLimits",
    "HostMemory",
    "Interpreter",
    "JobNodes",
    "JobVariables",
    "Launch",
    "LibCuda",
    "LibraryTrees",
    "LibraryUses",
    "Model",
    "ModelFiles",
    "Mounts",
    "Network",
    "Packages",
    "Processes",
    "RayClusters",
    "Rdma",
    "Requirements",
    "Resources",
    "SharedMemory",
    "SitePlaces",
    "System",
    "TorchBuild",
    "TorchTree",
    "Variables",
    "VerlTrees",
    "VisibleDevices",
    "VllmTree",
    "VllmUses",
]
