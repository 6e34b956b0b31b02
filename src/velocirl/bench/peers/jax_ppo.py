"""PPO as one jitted JAX program: CartPole, policy, advantages and updates, with no Python in between.

A time limit counts as a terminal state here, which saves evaluating final observations. Adam is written out, so that a
GPU machine needs no package but JAX.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax  # pyright: ignore[reportMissingImports] - a peer, where installed
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]

HIDDEN, ACTIONS = 64, 2
GAMMA, GAE_LAMBDA, CLIP, VALUE_COEFFICIENT, ENTROPY_COEFFICIENT = 0.99, 0.95, 0.2, 0.5, 0.01
LEARNING_RATE, MAX_GRADIENT_NORM = 1e-3, 0.5
BETAS, EPSILON = (0.9, 0.999), 1e-5  # of Adam


class Adam(NamedTuple):
    """Moving averages of the gradient and its square, shaped like the parameters, and the number of steps."""

    means: Any
    squares: Any
    steps: Any


class Training(NamedTuple):
    """State that changes from one iteration to the next."""

    parameters: Any
    optimiser: Adam
    states: Any  # (num_envs, 4)
    lengths: Any  # (num_envs,) steps of the current episodes
    key: Any


def initial_parameters(key: Any) -> dict[str, Any]:
    """Return orthogonal weights; the last layer outputs logits and, in its last column, the value."""
    keys = jax.random.split(key, 4)
    orthogonal = jax.nn.initializers.orthogonal
    policy, value = orthogonal(0.01)(keys[2], (HIDDEN, ACTIONS)), orthogonal(1.0)(keys[3], (HIDDEN, 1))
    return {
        "first": (orthogonal(2**0.5)(keys[0], (4, HIDDEN)), jnp.zeros(HIDDEN)),
        "second": (orthogonal(2**0.5)(keys[1], (HIDDEN, HIDDEN)), jnp.zeros(HIDDEN)),
        "last": (jnp.concatenate([policy, value], 1), jnp.zeros(ACTIONS + 1)),
    }


def evaluate(parameters: Any, observations: Any) -> tuple[Any, Any]:
    """Compute log-probabilities (rows, 2) and values (rows,)."""
    rows = observations
    for layer in ("first", "second"):
        weights, biases = parameters[layer]
        rows = jnp.tanh(rows @ weights + biases)
    weights, biases = parameters["last"]
    outputs = rows @ weights + biases
    return jax.nn.log_softmax(outputs[:, :ACTIONS]), outputs[:, ACTIONS]


def step(states: Any, actions: Any) -> tuple[Any, Any]:
    """Step Gymnasium's CartPole-v1: returns the next states and which poles have fallen."""
    _, velocity, angle, angular_velocity = states.T
    force = jnp.where(actions == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    thrust = (force + 0.05 * angular_velocity**2 * sine) / 1.1
    angular_acceleration = (9.8 * sine - cosine * thrust) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    acceleration = thrust - 0.05 * angular_acceleration * cosine / 1.1
    rates = jnp.stack([velocity, acceleration, angular_velocity, angular_acceleration], 1)
    after = states + 0.02 * rates
    return after, (jnp.abs(after[:, 0]) > 2.4) | (jnp.abs(after[:, 2]) > 12 * jnp.pi / 180)


def random_states(key: Any, num_envs: int) -> Any:
    """Sample initial states, (num_envs, 4)."""
    return jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)


def estimate(values: Any, ended: Any, last_values: Any) -> Any:
    """Compute GAE advantages where every reward is 1; all arrays are (horizon, num_envs)."""

    def back(after: Any, now: Any) -> tuple[Any, Any]:
        advantage, next_value = after
        value, end = now
        delta = 1.0 + GAMMA * next_value * (1.0 - end) - value
        advantage = delta + GAMMA * GAE_LAMBDA * (1.0 - end) * advantage
        return (advantage, value), advantage

    return jax.lax.scan(back, (jnp.zeros_like(last_values), last_values), (values, ended), reverse=True)[1]


def loss(parameters: Any, batch: Any) -> Any:
    """Compute PPO's loss of a minibatch with normalized advantages."""
    observations, actions, old_log_probabilities, advantages, targets = batch
    log_probabilities, values = evaluate(parameters, observations)
    ratios = jnp.exp(jnp.take_along_axis(log_probabilities, actions[:, None], 1)[:, 0] - old_log_probabilities)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy_loss = -jnp.minimum(ratios * advantages, jnp.clip(ratios, 1 - CLIP, 1 + CLIP) * advantages).mean()
    value_loss = 0.5 * ((values - targets) ** 2).mean()
    entropy = -(jnp.exp(log_probabilities) * log_probabilities).sum(1).mean()
    return policy_loss + VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * entropy


def descend(parameters: Any, optimiser: Adam, gradient: Any) -> tuple[Any, Adam]:
    """Take a step of Adam along the gradient, clipped by its norm."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, MAX_GRADIENT_NORM / norm), gradient)
    steps = optimiser.steps + 1

    def towards(beta: float, average: Any, now: Any) -> Any:
        return jax.tree.map(lambda old, new: beta * old + (1.0 - beta) * new, average, now)

    means = towards(BETAS[0], optimiser.means, gradient)
    squares = towards(BETAS[1], optimiser.squares, jax.tree.map(jnp.square, gradient))

    def move(parameter: Any, mean: Any, square: Any) -> Any:
        mean, square = mean / (1.0 - BETAS[0] ** steps), square / (1.0 - BETAS[1] ** steps)
        return parameter - LEARNING_RATE * mean / (jnp.sqrt(square) + EPSILON)

    return jax.tree.map(move, parameters, means, squares), Adam(means, squares, steps)


def first(num_envs: int) -> Training:
    """Return the training state before the first iteration."""
    key = jax.random.PRNGKey(0)
    parameters = initial_parameters(key)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    lengths = jnp.zeros(num_envs, jnp.int32)
    optimiser = Adam(zeros, zeros, jnp.zeros((), jnp.int32))
    return Training(parameters, optimiser, random_states(key, num_envs), lengths, key)


def iteration(horizon: int, epochs: int, minibatch_size: int) -> Callable[[Training], tuple[Training, Any]]:
    """Compile one iteration; it returns the next training state and the fraction of steps that ended an episode."""

    def act(training: Training, _: Any) -> tuple[Training, Any]:
        key, for_actions, for_resets = jax.random.split(training.key, 3)
        log_probabilities, values = evaluate(training.parameters, training.states)
        actions = jax.random.categorical(for_actions, log_probabilities)
        chosen = jnp.take_along_axis(log_probabilities, actions[:, None], 1)[:, 0]
        after, fallen = step(training.states, actions)
        ended = fallen | (training.lengths + 1 >= 500)
        fresh = random_states(for_resets, len(after))
        following = training._replace(
            states=jnp.where(ended[:, None], fresh, after),
            lengths=jnp.where(ended, 0, training.lengths + 1),
            key=key,
        )
        return following, (training.states, actions, chosen, values, ended)

    @jax.jit
    def iterate(training: Training) -> tuple[Training, Any]:
        training, (observations, actions, chosen, values, ended) = jax.lax.scan(act, training, None, horizon)
        _, last_values = evaluate(training.parameters, training.states)
        advantages = estimate(values, ended, last_values)
        rollout = (observations, actions, chosen, advantages, advantages + values)
        samples = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), rollout)

        def minibatch(learning: Any, rows: Any) -> tuple[Any, None]:
            parameters, optimiser = learning
            gradient = jax.grad(loss)(parameters, jax.tree.map(lambda array: array[rows], samples))
            return descend(parameters, optimiser, gradient), None

        def epoch(learning: Any, key: Any) -> tuple[Any, None]:
            order = jax.random.permutation(key, advantages.size).reshape(-1, minibatch_size)
            return jax.lax.scan(minibatch, learning, order)

        key, *keys = jax.random.split(training.key, 1 + epochs)
        learning = (training.parameters, training.optimiser)
        (parameters, optimiser), _ = jax.lax.scan(epoch, learning, jnp.stack(keys))
        return training._replace(parameters=parameters, optimiser=optimiser, key=key), ended.mean()

    return iterate


def training(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], None]:
    """Return a call that runs one iteration on the CPU."""
    jax.config.update("jax_platforms", "cpu")
    return _training(num_envs, horizon, epochs, minibatch_size)


def training_on_gpu(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], None]:
    """Return a call that runs one iteration on the GPU that JAX finds."""
    # By default JAX reserves three quarters of the memory, and other libraries are measured on the same GPU.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.25")
    if jax.default_backend() == "cpu":
        raise RuntimeError("JAX finds no GPU here")
    return _training(num_envs, horizon, epochs, minibatch_size)


def _training(num_envs: int, horizon: int, epochs: int, minibatch_size: int) -> Callable[[], None]:
    iterate, state = iteration(horizon, epochs, minibatch_size), first(num_envs)

    def call() -> None:
        nonlocal state
        state = jax.block_until_ready(iterate(state))[0]

    return call
