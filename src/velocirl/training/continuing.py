"""Going on by another algorithm: an agent that learns from steps begins with the networks of one that learnt from data.

Where the agents encode observations differently (one normalises by the moments of its data, the other scales by bounds,
or divides bytes by 255), the first layers make up for it. Of a number x one reads c(x) = (x - m) s, the other
c'(x) = (x - m') s', so that c(x) W + b = c'(x) W' + b' with W' = s / s' W and b' = b + (m' - m) s W. It acts the same
but where numbers lie ten deviations and more from the data, which a normalizer clips.
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

PARAMETERS = ".parameters"  # the ends of names


def take_over(agent: DeepAgent, other: DeepAgent) -> None:
    """Let the networks, targets and numbers of an agent that has not learnt yet be those of another, by their names."""
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
    """Build the networks anew in the shapes of the other's, where they follow from defaults and not from the user."""
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
    """Return the settings that decide the shapes of an agent's networks, as these were built."""
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
        if network.setting != "network":  # described where its layers are others than the actor's
            widths = built.chains[0].hidden
            found[network.setting] = None if widths == found["hidden"] else f"mlp({', '.join(map(str, widths))})"
    return found


def _folded(network: MLP, parameters: NDArray[np.float32], other: DeepAgent, agent: DeepAgent) -> NDArray[np.float32]:
    """The parameters that give for the agent's encoding what those of the other give for its own."""
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
