"""How the parts of a torch machine for off-policy learning are put together, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.buffers.replay import transition_type
from velocirl.networks.specs import NetworkSpec, parse_network
from velocirl.training.config import OWN_MODULE, is_own_module
from velocirl.training.device_choice import no_cuda
from velocirl.training.off_policy import Behaviour
from velocirl.training.off_policy_agent import OffPolicyAgent
from velocirl.training.off_policy_config import OffPolicyConfig
from velocirl.vector.host_interface import HostInterface

try:
    import torch
except ImportError as missing:
    raise ImportError('a network of torch, or device="cuda", needs torch: pip install "velocirl[torch]"') from missing

from velocirl.networks.mlp import MLP
from velocirl.networks.torch_mlp import TorchMLP
from velocirl.networks.torch_network import TorchNetwork
from velocirl.training.torch_device import Device, make_device
from velocirl.training.torch_off_policy import TorchOffPolicyMachine
from velocirl.training.torch_off_policy_ring import Sizes, TorchClock, TorchRing, tells_of_ring
from velocirl.training.torch_off_policy_steps import FleetSteps, HostSteps, Steps

PRODUCTS = {"float32": None, "tf32": None, "bf16": torch.bfloat16}

# (device, clock, ring) -> what updates; its `network` is the one that acts.
MakeUpdate = Callable[[Device, TorchClock, TorchRing], Any]


def refuse(config: OffPolicyConfig) -> None:
    """Refuse settings that only the native learner has."""
    native = 'leave network out, and give device="cpu"'
    if config.priority == "rank":
        raise ValueError(f'priority="rank" needs the native network: {native}; or give priority="proportional"')
    if config.buffer_file is not None:
        raise ValueError(f"buffer_file needs the native network: {native}; or leave it out, and reduce buffer_size")
    if config.precision == "fp16":
        raise ValueError('precision="fp16" is not for learning from a memory: give "bf16"')
    if config.device == "cuda" and (missing := no_cuda()) is not None:
        raise RuntimeError(f'device="cuda" cannot be used: {missing}; give device="cpu" (velocirl doctor tells more)')


def own_module(described: Any, module: Any, setting: str) -> bool:
    """Whether a setting is a module of the user's own; raises where that module is missing, or is none."""
    if module is None:
        if is_own_module(described):
            kind = str(described).removeprefix(OWN_MODULE)
            raise ValueError(
                f"this agent's {setting} is a module of your own, {kind}, which no file holds: give"
                f" {setting}={kind}(...)"
            )
        return False
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise TypeError(f"{setting} must be a description such as 'mlp(64, 64)' or a torch.nn.Module, not {kind}")
    return True


def single_steps(described: Any, algorithm: str) -> NetworkSpec:
    """A description, which may not remember."""
    spec = parse_network(described)
    if spec.recurrent is not None:
        raise ValueError(
            f"{algorithm.upper()} draws single steps from its memory, so that a network cannot remember: leave"
            f" {spec.recurrent.kind} out, or use PPO"
        )
    return spec


def network_on(agent: OffPolicyAgent, device: Device, *, has_value: bool) -> Any:
    """The network that learns: that of the policy where it can be, or a copy of it on the device."""
    config, policy = agent.config, agent.policy
    dtype = PRODUCTS[config.precision]
    if isinstance(policy.network, MLP):
        return TorchMLP(policy.network, device.torch, None, dtype)
    network = TorchNetwork(
        policy.module_for(device.name), agent.encoding, agent.head, device.torch, dtype, has_value=has_value
    )
    if config.compile:
        network.compile()
    return network


def assemble(agent: OffPolicyAgent, behaviour: Behaviour, make_update: MakeUpdate) -> TorchOffPolicyMachine:
    """Copies of the environment, a memory and what learns; on a GPU, captured as graphs."""
    config, head, encoding, seeds = agent.config, agent.head, agent.encoding, agent.seeds
    refuse(config)
    assert config.threads is not None  # noqa: S101 - resolved in the constructor
    device = make_device(config.device, config.threads, config.precision, config.batch_size * agent.num_parameters)
    kind = transition_type(
        encoding.inputs, head.action_size, head.action_dtype, head.outputs if head.masked else 0
    )  # fmt: skip
    sizes = Sizes(
        config.buffer_size, config.num_envs, config.batch_size, config.n_step, config.gamma, config.priority,
        config.priority_alpha,
    )  # fmt: skip
    with tells_of_ring(device.name, config.buffer_size, kind.itemsize):
        clock = TorchClock(device)
        ring = TorchRing(device, kind, sizes, encoding.inputs, clock, seeds.learner)
        update = make_update(device, clock, ring)
        steps = _make_steps(agent, device, behaviour, update.network, ring, clock)
        machine = TorchOffPolicyMachine(
            device, steps, ring, clock, update, agent.policy.parameters,
            recent=agent.recent_returns.maxlen or 0, phases=agent.phases,
        )  # fmt: skip
        actor_every, target_every, _ = agent.targets
        machine.prepare(actor_every, target_every)
        return machine


def _make_steps(
    agent: OffPolicyAgent, device: Device, behaviour: Behaviour, network: Any, ring: TorchRing, clock: TorchClock
) -> Steps:
    config, source, head, encoding, seeds = agent.config, agent.source, agent.head, agent.encoding, agent.seeds
    copies, most = config.num_envs, agent.steps_of_iteration
    if source.native is not None:
        return FleetSteps(
            device, source.native, source.params, copies, most, encoding, head, behaviour, network, ring, clock,
            (seeds.environment, seeds.policy),
        )  # fmt: skip
    envs = source.make_copies(copies, seed=seeds.environment, threads=1, workers=config.workers)
    if not isinstance(envs, HostInterface):
        raise TypeError(f"{source.id} gives a {type(envs).__name__}, which {agent.name} cannot step")
    assert config.threads is not None  # noqa: S101 - resolved in the constructor
    return HostSteps(device, envs, most, encoding, head, behaviour, network, ring, seeds.policy, config.threads)
