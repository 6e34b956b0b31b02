"""The one place where the loss of PPO is written: the gradient for one sample, compiled for every target alike."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, NamedTuple

import numpy as np

from velocirl.networks.heads import Head

# What the loss reports of each sample; the engine averages.
POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIP_FRACTION, LOSS = range(6)


class LossSettings(NamedTuple):
    """The numbers of the loss; a clip of 0 is off."""

    clip: np.float32
    value_clip: np.float32
    dual_clip: np.float32
    value_coefficient: np.float32
    entropy_coefficient: np.float32


def loss_settings(config: Any) -> LossSettings:
    """The numbers of the loss from a configuration."""
    return LossSettings(*(np.float32(getattr(config, name)) for name in LossSettings._fields))


def ppo_loss(head: Head) -> Callable[..., Any]:
    """The loss over the distribution of a head; the value stands in the column after its outputs."""
    evaluate, backward, value_column = head.evaluate, head.backward, head.outputs

    def loss_gradient(output, sample, advantage, settings, gradient, metrics):
        """d(loss)/d(output) of one sample.

        loss = -min(r A, clip(r, 1 - eps, 1 + eps) A) + c_v (v - R)^2 / 2 - c_e H(pi),  r = pi(a|s) / pi_old(a|s)

        With a dual clip d, a loss of negative A is at most -d A (Ye et al., 2020); with a value clip, the value's error
        is the larger one of v and of v held within eps_v of the old value.
        """
        log_probability, entropy = evaluate(output, sample.mask, sample.action, gradient)
        log_ratio = log_probability - sample.log_probability
        ratio = exp(log_ratio)
        low, high = 1.0 - settings.clip, 1.0 + settings.clip

        clipped = settings.clip > 0.0 and ((advantage > 0.0 and ratio > high) or (advantage < 0.0 and ratio < low))
        held = min(max(ratio, low), high) if clipped else ratio
        given_up = settings.dual_clip > 0.0 and advantage < 0.0 and ratio > settings.dual_clip
        held = settings.dual_clip if given_up else held
        policy_weight = 0.0 if clipped or given_up else -advantage * ratio
        backward(output, sample.mask, sample.action, policy_weight, -settings.entropy_coefficient, gradient)

        value = output[value_column]
        error = value - sample.target
        slope = error
        if settings.value_clip > 0.0:
            change = value - sample.value
            near = sample.value + min(max(change, -settings.value_clip), settings.value_clip)
            held_error = near - sample.target
            if held_error * held_error > error * error:
                error = held_error
                slope = 0.0 if abs(change) > settings.value_clip else held_error
        gradient[value_column] = settings.value_coefficient * slope

        policy_loss, value_loss = -advantage * held, 0.5 * error * error
        metrics[POLICY_LOSS] = policy_loss
        metrics[VALUE_LOSS] = value_loss
        metrics[ENTROPY] = entropy
        metrics[APPROX_KL] = (ratio - 1.0) - log_ratio
        metrics[CLIP_FRACTION] = 1.0 if abs(ratio - 1.0) > settings.clip else 0.0
        metrics[LOSS] = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy

    return loss_gradient
