"""A small actor and critics in torch, in double precision, for the tests of the losses of SAC and TD3."""

import numpy as np
import torch

from velocirl.engine import random
from velocirl.engine.compiling import compile_loop, learning_translator

ROWS, SIZE, OBSERVED, METRICS = 200, 2, 3, 8


class Critics(torch.nn.Module):
    """Two critics over [observation | action]."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        layers = [
            torch.nn.Sequential(torch.nn.Linear(OBSERVED + SIZE, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            for _ in range(2)
        ]
        self.layers = torch.nn.ModuleList(layers).double()

    def forward(self, observation, action):
        both = torch.cat([observation, action], 1)
        return torch.cat([layer(both) for layer in self.layers], 1)


def act_loop(loss):
    act_again = loss.act_again

    def loop(output, rng, settings, noise, action, log_probability):
        for i in range(len(output)):
            log_probability[i] = act_again(output[i], rng, settings, noise[i], action[i])

    return loop


def slope_loop(loss):
    value_slope = loss.value_slope

    def loop(values, gradient, part):
        for i in range(len(values)):
            part[i] = value_slope(values[i], gradient[i])

    return loop


def actor_loop(loss):
    actor_gradient = loss.actor_gradient

    def loop(output, noise, action, slope, log_probability, temperature, settings, gradient, metrics):
        for i in range(len(output)):
            actor_gradient(
                output[i], noise[i], action[i], slope[i], log_probability[i], temperature, settings, gradient[i],
                metrics[i],
            )  # fmt: skip

    return loop


def critic_loop(loss):
    critic_gradient = loss.critic_gradient

    def loop(values, goal, weight, settings, gradient, metrics, error):
        for i in range(len(values)):
            error[i] = critic_gradient(values[i], goal[i], weight[i], settings, gradient[i], metrics[i])

    return loop


def call(loop, compiled, *arguments):
    """Run a loop, plain or compiled."""
    if compiled:
        loop = compile_loop(loop, arguments, learning_translator("loss"), before=lambda: None)
    loop(*arguments)


def improve_actor(loss, settings, output, temperature, compiled):
    """What an update does for the actor: its gradient, and everything that was met on the way."""
    kind = np.float32 if compiled else np.float64
    output = output.astype(kind)
    rng = random.streams(5, 1)[0]
    noise, action = np.zeros((ROWS, SIZE), kind), np.zeros((ROWS, SIZE), kind)
    log_probability = np.zeros(ROWS, kind)
    call(act_loop(loss), compiled, output, rng, settings, noise, action, log_probability)

    observation = torch.tensor(np.random.default_rng(1).normal(size=(ROWS, OBSERVED)))
    critics, again = Critics(), torch.tensor(action.astype(np.float64), requires_grad=True)
    values = critics(observation, again)
    value_gradient, part = np.full((ROWS, 2), 7, kind), np.zeros(ROWS, kind)
    call(slope_loop(loss), compiled, values.detach().numpy().astype(kind), value_gradient, part)
    values.backward(torch.tensor(value_gradient.astype(np.float64)))
    slope = again.grad.numpy().astype(kind)

    gradient, metrics = np.full(output.shape, 7, kind), np.full((ROWS, METRICS), 7, kind)
    arguments = output, noise, action, slope, log_probability, kind(temperature), settings, gradient, metrics
    call(actor_loop(loss), compiled, *arguments)
    return observation, critics, noise, action, log_probability, part, gradient, metrics


def check_critics(loss, settings, compiled):
    """The gradient of the critics' loss against autograd, and the error that becomes a priority."""
    kind = np.float32 if compiled else np.float64
    generator = np.random.default_rng(2)
    values, goal, weight = (generator.normal(size=shape).astype(kind) for shape in ((ROWS, 2), ROWS, ROWS))
    gradient, metrics, error = np.full((ROWS, 2), 7, kind), np.full((ROWS, METRICS), 7, kind), np.zeros(ROWS, kind)
    call(critic_loop(loss), compiled, values, goal, weight, settings, gradient, metrics, error)
    estimates = torch.tensor(values.astype(np.float64), requires_grad=True)
    errors = estimates - torch.tensor(goal.astype(np.float64))[:, None]
    losses = torch.tensor(weight.astype(np.float64)) * (errors**2).sum(1) / 2
    losses.sum().backward()
    assert np.allclose(gradient, estimates.grad, rtol=1e-5, atol=1e-6)
    assert np.allclose(metrics[:, 0], losses.detach(), rtol=1e-5, atol=1e-6)
    assert np.allclose(error, errors.abs().mean(1).detach(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(metrics[:, 2], error)
    assert (metrics[:, 4:] == 7).all()  # those of the actor
