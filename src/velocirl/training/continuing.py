"""Initialization of an agent's networks from another algorithm's agent: from offline to online training.

The agents may encode observations differently: one normalizes by the moments of its data, the other scales by bounds or
divides uint8 values by 255. The first layers compensate for this. For a number x, one reads c(x) = (x - m) s, the other
c'(x) = (x - m') s', so that c(x) W + b = c'(x) W' + b' with W' = s / s' W and b' = b + (m' - m) s W. The agent acts
the same, except where numbers are ten or more standard deviations from the data, which a normalizer clips.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.networks.declared import trained
from velocirl.networks.mlp import MLP

if TYPE_CHECKING:
    from velocirl.training.deep_agent import DeepAgent

PARAMETERS = ".parameters"  # name suffix


def take_over(agent: DeepAgent, other: DeepAgent) -> None:
    """Copy another agent's networks, targets and numbers, by name, into an agent that has not been trained yet."""
    if agent.steps:
        raise ValueError(f"{agent.label} has learnt already: let it go on from another agent before that")
    if other.source.signature() != agent.source.signature():
        raise ValueError(f"{other.label} is for {other.source.id}, whose spaces are not those of {agent.source.id}")
    _take_shapes(agent, other)
    arrays = other.arrays()
    theirs = {name.removesuffix(PARAMETERS): one for name, one in arrays.items() if name.endswith(PARAMETERS)}
    theirs[other.acting] = theirs.pop("network")
    task = agent.task()
    for name in task.trained:
        _require_alike(agent, other, name, theirs)
    agent.prepare()
    sources = {name: name for name in task.trained} | task.targets
    found = {name: _folded(agent.built[of], theirs.get(name, theirs[of]), other, agent) for name, of in sources.items()}
    agent.policy.parameters[:] = found.pop(agent.acting)
    agent.learner.take()
    state = agent.learner.state() | {f"{name}{PARAMETERS}": one for name, one in found.items()}
    if task.numbers:
        known = dict(zip(other.task().numbers, arrays.get("numbers.values", ()), strict=False))
        values = [known.get(name, own) for name, own in zip(task.numbers, state["numbers.values"], strict=True)]
        state["numbers.values"] = np.array(values, np.float32)
    agent.learner.load_state(state)


def _require_alike(agent: DeepAgent, other: DeepAgent, name: str, theirs: Mapping[str, Any]) -> None:
    ours, built = agent.built[name], other.built.get(name)
    if built is None or name not in theirs:
        raise ValueError(f"{agent.label} begins with {name}, which {other.label} has not learnt")
    if not isinstance(ours, MLP) or not isinstance(built, MLP):
        raise ValueError("a torch network cannot be taken over: describe the networks of both agents by hidden")
    if ours != built:
        raise ValueError(
            f"{name} of {other.label} and {agent.label} have different outputs: continue TD3BC and ReBRAC by TD3,"
            " CQL by SAC or OnlineCQL, IQL by OnlineIQL, DiscreteCQL by DQN, DiscreteIQL by DiscreteSAC"
        )


def _take_shapes(agent: DeepAgent, other: DeepAgent) -> None:
    """Rebuild the networks in the other agent's shapes, where the user did not set the shapes."""
    both = [name for name in agent.built if name in other.built]
    native = all(isinstance(other.built[name], MLP) for name in both)
    if not native or all(agent.built[name] == other.built[name] for name in both):
        return
    given = {name for name in agent.given if getattr(agent.config, name) is not None}
    ours, theirs = shape_settings(agent), shape_settings(other)
    for name, value in theirs.items():
        if name not in ours or ours[name] == value:
            continue
        decides = "network" if name == "hidden" and "network" in given else name
        if decides in given:
            raise ValueError(
                f"{decides}={getattr(agent.config, decides)!r} of {agent.label} contradicts {name}={value!r} of"
                f" {other.label}: leave {decides} out, or train both with one value"
            )
    agent.rebuild({name: value for name, value in theirs.items() if name in ours and name not in given})


def shape_settings(agent: DeepAgent) -> dict[str, Any]:
    """Return the settings that determine the shapes of an agent's networks, as they were built."""
    config, first = agent.config, agent.built[agent.acting]
    native = isinstance(first, MLP)
    found = {
        "network": None if native else config.network,
        "hidden": first.chains[0].hidden if native else config.hidden,
        "activation": config.activation,
        "initialiser": config.initialiser,
    }
    for name, network in trained(agent.networks).items():
        built = agent.built[name]
        if not isinstance(built, MLP):
            continue
        found[network.norm_setting] = built.layer_norm
        if network.setting != "network":  # described if its layers differ from the actor's
            widths = built.chains[0].hidden
            found[network.setting] = None if widths == found["hidden"] else f"mlp({', '.join(map(str, widths))})"
    return found


def _folded(network: MLP, parameters: NDArray[np.float32], other: DeepAgent, agent: DeepAgent) -> NDArray[np.float32]:
    """Return parameters adapted to the agent's encoding, so that outputs equal those with the other's encoding."""
    found, inputs = parameters.copy(), agent.encoding.inputs
    before, now = (
        one.encoding.affine(one.observation_moments.mean, one.observation_moments.inverse_deviation)
        for one in (other, agent)
    )
    scale = before.scale.astype(np.float64) / now.scale
    shift = (now.centre.astype(np.float64) - before.centre) * before.scale
    if (scale == 1.0).all() and (shift == 0.0).all():
        return found
    for layer, (weights, biases) in zip(network.plan.layers, network.layers(found), strict=True):
        if layer["first"]:
            seen = weights[:inputs].astype(np.float64)
            biases[:] = biases + shift @ seen
            weights[:inputs] = seen * scale[:, None]
    return found
