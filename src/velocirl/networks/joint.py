"""Head of actions with choices and numbers: they are independent, so log-probabilities add up.

    log p(choices, numbers) = log p(choices) + log p(numbers),  and so do entropies

Choices come first, then numbers. An output has logits before means and log standard deviations. An action has options,
as integers in single precision, before the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from velocirl.networks.heads import Head


def joint(choices: Head, numbers: Head) -> Head:
    """Return a head of choices and numbers, each with its own head."""
    logits, chosen = choices.outputs, choices.action_size
    as_options = options_of(chosen)
    sample_choices, mode_choices, draw_choices = choices.sample, choices.mode, choices.draw
    evaluate_choices, backward_choices = choices.evaluate, choices.backward
    sample_numbers, mode_numbers, draw_numbers = numbers.sample, numbers.mode, numbers.draw
    evaluate_numbers, backward_numbers = numbers.evaluate, numbers.backward
    divergence_of_choices, diverge_choices = choices.divergence, choices.diverge
    divergence_of_numbers, diverge_numbers = numbers.divergence, numbers.diverge

    def sample(output, mask, rng, action):
        of_choices = sample_choices(output, mask, rng, action)
        return of_choices + sample_numbers(output[logits:], mask, rng, action[chosen:])

    def mode(output, mask, action):
        mode_choices(output, mask, action)
        mode_numbers(output[logits:], mask, action[chosen:])

    def draw(mask, rng, action):
        draw_choices(mask, rng, action)
        draw_numbers(mask, rng, action[chosen:])

    def evaluate(output, mask, action, scratch):
        """Also leaves the scratch of both heads, each in its own columns."""
        of_choices, entropy = evaluate_choices(output, mask, as_options(action), scratch)
        of_numbers, more = evaluate_numbers(output[logits:], mask, action[chosen:], scratch[logits:])
        return of_choices + of_numbers, entropy + more

    def backward(output, mask, action, policy_weight, entropy_weight, gradient):
        backward_choices(output, mask, action, policy_weight, entropy_weight, gradient)
        backward_numbers(output[logits:], mask, action[chosen:], policy_weight, entropy_weight, gradient[logits:])

    def divergence(output, old, mask):
        return divergence_of_choices(output, old, mask) + divergence_of_numbers(output[logits:], old[logits:], mask)

    def diverge(output, old, mask, weight, gradient):
        diverge_choices(output, old, mask, weight, gradient)
        diverge_numbers(output[logits:], old[logits:], mask, weight, gradient[logits:])

    return choices._replace(
        name="joint",
        outputs=choices.outputs + numbers.outputs,
        action_size=choices.action_size + numbers.action_size,
        action_dtype=numbers.action_dtype,
        counts=(*choices.counts, *numbers.counts),
        sample=sample,
        mode=mode,
        draw=draw,
        evaluate=evaluate,
        backward=backward,
        divergence=divergence,
        diverge=diverge,  # `probabilities` remain the choices' ones, which come first
    )


def options_of(count: int) -> Callable[..., Any]:
    """Compose `as_options(action)`: the first `count` numbers of an action as integer options."""
    last = count - 1

    def option(action):
        return (int(action[last]),)

    if count == 1:
        return option
    others = options_of(last)

    def options(action):
        return others(action) + option(action)

    return options
