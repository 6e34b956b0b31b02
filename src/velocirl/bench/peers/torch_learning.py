"""Parts of an update in torch: PPO's loss and its gradient, and a step of Adam."""

from __future__ import annotations

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed

CLIP, VALUE_COEFFICIENT, ENTROPY_COEFFICIENT = 0.2, 0.5, 0.01


def ppo_loss(
    outputs: torch.Tensor,  # (samples, 3): two logits and the value
    actions: torch.Tensor,  # (samples,), as are the rest
    log_probabilities: torch.Tensor,
    advantages: torch.Tensor,
    targets: torch.Tensor,
) -> torch.Tensor:
    """Compute PPO's loss, summed over the samples."""
    logarithms = torch.log_softmax(outputs[:, :2], 1)
    ratio = (logarithms.gather(1, actions[:, None])[:, 0] - log_probabilities).exp()
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    value_loss = 0.5 * (outputs[:, 2] - targets) ** 2
    entropy = -(logarithms.exp() * logarithms).sum(1)
    return (policy_loss + VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * entropy).sum()


def losing(samples: int) -> Callable[[], object]:
    """Return a call that computes the loss gradient of random outputs."""
    torch.manual_seed(0)
    outputs = torch.randn(samples, 3, requires_grad=True)
    actions, log_probabilities = torch.randint(0, 2, (samples,)), -torch.rand(samples)
    advantages, targets = torch.randn(samples), torch.randn(samples)

    def call() -> torch.Tensor:
        return torch.autograd.grad(ppo_loss(outputs, actions, log_probabilities, advantages, targets), outputs)[0]

    return call


def descending(parameters: int) -> Callable[[], object]:
    """Return a call that takes one fused step of Adam with a constant gradient."""
    vector = torch.nn.Parameter(torch.zeros(parameters))
    vector.grad = torch.full_like(vector, 0.1)
    return torch.optim.Adam([vector], lr=1e-4, fused=True).step
