"""Construction of an agent's networks from its settings: native, or torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.networks.declared import Network, native_network, trained
from velocirl.networks.encoding import Encoding
from velocirl.networks.mlp import MLP
from velocirl.networks.specs import Dense, parse_network
from velocirl.training.settings.config import OWN_MODULE, is_own_module
from velocirl.training.settings.policies import FEATURES, Features

if TYPE_CHECKING:
    from velocirl.training.deep_agent import DeepAgent


def build_networks(agent: DeepAgent) -> dict[str, Any]:
    """Build the trained networks of an agent; returns them by name."""
    if len(agent.modules) > 1:
        from velocirl.networks.torch.building import require_apart  # needs torch

        require_apart(agent.modules)
    built: dict[str, Any] = {}
    first: dict[str, Any] = {}  # by the setting's name
    for name, network in trained(agent.networks).items():
        module, before = agent.modules.get(network.setting), first.get(network.setting)
        if (
            module is not None and before is not None and not isinstance(module, Features)
        ):  # networks of one setting train separately, from the same initial parameters
            module = before.held.copied_module()
        built[name] = _build(agent, name, network, module)
        first.setdefault(network.setting, built[name])
    return built


def _build(agent: DeepAgent, name: str, network: Network, module: Any) -> Any:
    """Build a trained network: native, or torch's if a setting requires it; `module` is a user's own module."""
    config, groups = agent.config, network.gives(agent)
    described = getattr(config, network.setting, None)
    if network.setting != "network" and described is None:  # same as the acting network
        described, module = config.network, agent.modules.get("network")
        if module is not None and not isinstance(module, Features):
            raise ValueError(
                f"a network of your own needs {network.setting}s too: give {network.setting}, a description such as"
                f" 'mlp(64, 64)' or a module whose forward({', '.join(network.reads)}) gives"
                f" {sum(one.size for group in groups for one in group)} values, to {agent.name.upper()}"
            )
    extra = sum(agent.width_of(field) for field in network.reads[1:])
    layer_norm, own_stages = _has_layer_norm(agent, network), described is not None
    if described is None and config.compile:  # torch's compiler needs a module
        described = f"mlp({', '.join([*map(str, config.hidden), *['norm=layer'] * layer_norm])})"
    widths = config.hidden if described is None else _layers_alone(described, agent.encoding)
    widths = None if config.compile else widths
    together = network.together is not None and (described is not None or getattr(config, network.together))
    style = {"activation": config.activation, "initialiser": config.initialiser}
    apart = getattr(config, "critic_hidden", None) if network.setting == "network" else None
    if apart is not None and (own_stages or config.compile) and not is_own_module(described):
        raise ValueError(
            f"critic_hidden={apart} is for layers that are described by hidden: leave it out with network= and compile="
        )
    if widths is not None:
        return native_network(
            agent.encoding.inputs + extra,
            groups,
            widths,
            together=together,
            layer_norm=layer_norm,
            later=apart,
            **style,
        )
    if own_stages and getattr(config, network.norm_setting, None):
        raise ValueError(
            f"{network.norm_setting}=True is for layers that are described by hidden or as mlp(64, 64): in"
            f" {network.setting}={described!r} say where, as in mlp(64, norm=layer) or by a torch.nn.LayerNorm"
        )
    from velocirl.networks.torch import building as torch_building  # needs torch

    more = {"extra": extra, "compiled": config.compile}
    if isinstance(module, Features):
        hidden = [config.hidden, *[config.hidden if apart is None else apart] * (len(groups) - 1)]
        return torch_building.features_module(
            module.kind, module.arguments, agent.source.observation_space, agent.encoding, groups, hidden,
            generator=generator_of(agent, name), **more, **style,
        )  # fmt: skip
    if module is not None:
        if getattr(module, "state_size", 0):
            _refuse_memory(agent, f"{type(module).__qualname__} has a state_size")
        return torch_building.own_module(module, agent.encoding, groups, setting=network.setting, **more)
    if is_own_module(described):
        kind = str(described).removeprefix(OWN_MODULE)
        if kind.startswith(FEATURES):
            raise ValueError(
                f"this agent's features come from a class of your own, {kind.removeprefix(FEATURES)}, which no file"
                f" holds: give policy_kwargs=dict(features_extractor_class={kind.removeprefix(FEATURES)}, ...)"
            )
        raise ValueError(
            f"this agent's {network.setting} is a module of your own, {kind}, which no file holds: give"
            f" {network.setting}={kind}(...)"
        )
    spec = parse_network(described or "")
    if spec.recurrent is not None:
        _refuse_memory(agent, f"the network has {spec.recurrent.kind}")
    return torch_building.describe_module(
        spec, agent.encoding, groups, name="the network", together=network.together is not None,
        generator=generator_of(agent, name), **more, **style,
    )  # fmt: skip


def generator_of(agent: DeepAgent, name: str) -> np.random.Generator:
    """Return the generator of a network's initial parameters: different for each network of the same seed."""
    place = list(trained(agent.networks)).index(name)
    return np.random.default_rng([agent.seeds.initial, place] if place else agent.seeds.initial)


def norms_described(agent: DeepAgent) -> str:
    """Describe the networks with layer norms that their network description does not mention."""
    networks = trained(agent.networks)
    named = [
        name
        for name, network in networks.items()
        if _has_layer_norm(agent, network) and (isinstance(agent.built[name], MLP) or agent.config.network is None)
    ]
    if not named or not agent.config.hidden:
        return ""
    return ", layer norm" if len(named) == len(networks) else f", layer norm in {', '.join(named)}"


def _has_layer_norm(agent: DeepAgent, network: Network) -> bool:
    """Return whether hidden layers are normalized: by the network's setting, its declaration or the actor's setting."""
    wishes = getattr(agent.config, network.norm_setting, None), network.layer_norm, agent.config.layer_norm
    return next((wish for wish in wishes if wish is not None), False)


def _refuse_memory(agent: DeepAgent, reason: str) -> None:
    if not agent.remembers:
        raise ValueError(
            f"{reason}, but {agent.name.upper()} draws single steps from its memory, so that a network cannot"
            " remember: leave that out, or use PPO"
        )


def _layers_alone(network: str | dict[str, str] | None, encoding: Encoding) -> tuple[int, ...] | None:
    """Return the layer widths of a description such as mlp(64, 64); None if it contains more than plain layers."""
    if network is None or is_own_module(network):
        return None
    spec = parse_network(network)
    spec.check(encoding.parts)
    layers = [stage for stage in spec.stages if isinstance(stage, Dense) and stage.norm is None]
    if spec.encoders or len(layers) < len(spec.stages):
        return None
    return tuple(width for stage in layers for width in stage.widths)
