"""Heads: the action distribution defined by a policy network's output row, as scalar functions for one sample.

An option that its mask forbids has probability 0, is never sampled and gets no gradient. A mask that forbids everything
is ignored. Logits are clipped to +-1e30, so that infinite ones cause no NaN. A NaN logit makes the log-probability NaN,
and the action is a legal one even then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from velocirl.engine import random
from velocirl.engine.action_parts import check_parts, has_parts
from velocirl.networks.joint import joint

EXTREME = 1e30  # differences of two are finite in single precision, and their exponential is exactly 0
LOG_DEVIATION_LOW, LOG_DEVIATION_HIGH = -5.0, 2.0
HALF_LOG_TWO_PI = 0.9189385332046727


class Head(NamedTuple):
    """Action distribution for rows of float32 (mask: int8, action: `action_dtype`)."""

    name: str
    outputs: int  # columns of the network's output row used by the policy, its first ones
    action_size: int  # entries of an action row
    action_dtype: str
    counts: tuple[int, ...]  # options of each choice; for continuous actions then the number of these
    masked: bool  # whether masks are read: one entry for each option
    sample: Callable[..., Any]  # (output, mask, rng, action) -> log-probability; writes the action
    mode: Callable[..., Any]  # (output, mask, action); writes the most probable action
    best: Callable[..., Any]  # (output, mask) -> the option with the highest value, of the first choice
    draw: Callable[..., Any]  # (mask, rng, action); writes a random action, uniform over the legal ones
    evaluate: Callable[..., Any]  # (output, mask, action, scratch) -> log-probability, entropy
    # (output, mask, action, policy_weight, entropy_weight, gradient); `gradient` holds the scratch of evaluate, and
    # becomes policy_weight * d log-probability / d output + entropy_weight * d entropy / d output.
    backward: Callable[..., Any]
    divergence: Callable[..., Any]  # (output, old, mask) -> KL(policy of output || policy of old)
    diverge: Callable[..., Any]  # (output, old, mask, weight, gradient); adds weight * d divergence / d output
    columns: int = 1  # adjacent outputs whose mean is the value of an option, such as quantiles
    # (output, mask, into); writes the probability of each option under `sample`. None without choices.
    probabilities: Callable[..., Any] | None = None

    @property
    def numbers(self) -> int:
        """Number of continuous entries of an action row, its last ones."""
        return self.counts[-1] if self.action_dtype == "float32" else 0

    @property
    def options(self) -> int:
        """Number of mask entries: one for each logit, the first outputs."""
        return self.outputs - 2 * self.numbers


def head_for(action_space: Space[Any], masked: bool) -> Head:
    """Return the head of an action space; if `masked`, its choices come with a mask."""
    if np.any(getattr(action_space, "start", 0)):
        raise ValueError(f"a head's choices start at 0, those of {action_space} do not; shift them")
    if has_parts(action_space):
        return _of_parts(action_space, masked)
    if isinstance(action_space, Discrete):
        return categorical(int(action_space.n), masked)
    if isinstance(action_space, MultiDiscrete) and action_space.nvec.ndim == 1:
        return multi_discrete(tuple(int(count) for count in action_space.nvec), masked)
    if isinstance(action_space, MultiBinary) and len(action_space.shape) == 1:
        return multi_discrete((2,) * action_space.shape[0], masked)
    if isinstance(action_space, Box) and len(action_space.shape) == 1 and action_space.dtype.kind == "f":
        if masked:
            raise ValueError(f"{action_space} cannot be masked: a mask is for choices, and this has none; drop it")
        return gaussian(action_space.shape[0])
    raise ValueError(
        f"no head acts in {action_space}: use Discrete, or a flat MultiDiscrete, MultiBinary or Box of floats, or a"
        " Dict or Tuple of them"
    )


def _of_parts(action_space: Space[Any], masked: bool) -> Head:
    """Return the head of composite actions, whose rows have all choices first, then all numbers."""
    try:
        parts = check_parts(action_space)
    except ValueError as error:
        raise ValueError(f"no head acts in {action_space}: {error}") from None
    counts = tuple(count for part in parts for count in part.counts)
    size = sum(part.size for part in parts if not part.counts)
    if masked and not counts:
        raise ValueError(f"{action_space} cannot be masked: a mask is for choices, and this has none; drop it")
    if not size:
        return multi_discrete(counts, masked)
    return joint(multi_discrete(counts, masked), gaussian(size)) if counts else gaussian(size)


def categorical(count: int, masked: bool = False) -> Head:
    """Return a head for one choice of `count` options, from logits."""
    return multi_discrete((count,), masked)._replace(name="categorical")


def multi_discrete(counts: Sequence[int], masked: bool = False) -> Head:
    """Return a head for independent choices, from their concatenated logits in order."""
    counts = tuple(counts)
    if not counts or min(counts) < 1:
        raise ValueError(f"a head needs at least one choice, each of at least one option; got counts {counts}")
    is_free, is_legal = (nothing_is_legal, legal_by_mask) if masked else (always_free, legal_always)

    def favourite(output, mask, first, count):
        """Return the most probable option, its logit, and whether the mask is ignored."""
        free = is_free(mask, first, count)
        chosen, highest = 0, -2.0 * EXTREME
        for k in range(count):
            logit = bounded(output[first + k])
            # "Not below or equal" rather than "above": with NaNs, a legal option is chosen too.
            if is_legal(mask, first + k, free) and not logit <= highest:
                chosen, highest = k, logit
        return chosen, highest, free

    def weight_of(output, mask, column, highest, free):
        """Return the probability of an option, relative to the most probable one."""
        return exp(bounded(output[column]) - highest) if is_legal(mask, column, free) else 0.0

    def sample(output, mask, rng, action):
        log_probability = 0.0
        first = 0
        for part in range(len(counts)):
            chosen, highest, free = favourite(output, mask, first, counts[part])
            total = 0.0
            for k in range(counts[part]):
                total += weight_of(output, mask, first + k, highest, free)
            threshold = random.uniform(rng) * total
            # The last option of nonzero weight before the sum passes the threshold. If rounding keeps the sum below it,
            # this is still an option of nonzero weight. No early exit: its branch would be unpredictable.
            below = 0.0
            for k in range(counts[part]):
                weight = weight_of(output, mask, first + k, highest, free)
                if below <= threshold and weight > 0.0:
                    chosen = k
                below += weight
            action[part] = chosen
            log_probability += bounded(output[first + chosen]) - highest - log(total)
            first += counts[part]
        return log_probability

    def mode(output, mask, action):
        first = 0
        for part in range(len(counts)):
            action[part] = favourite(output, mask, first, counts[part])[0]
            first += counts[part]

    def best(output, mask):
        return favourite(output, mask, 0, counts[0])[0]

    def draw(mask, rng, action):
        first = 0
        for part in range(len(counts)):
            free = is_free(mask, first, counts[part])
            legal = 0
            for k in range(counts[part]):
                legal += 1 if is_legal(mask, first + k, free) else 0
            left = random.integer(rng, 0, legal)
            for k in range(counts[part]):
                if is_legal(mask, first + k, free):
                    if left == 0:
                        action[part] = k
                    left -= 1
            first += counts[part]

    def evaluate(output, mask, action, scratch):
        """Also leaves the probabilities in scratch."""
        log_probability = 0.0
        entropy = 0.0
        first = 0
        for part in range(len(counts)):
            _, highest, free = favourite(output, mask, first, counts[part])
            total = 0.0
            weighted = 0.0
            for k in range(counts[part]):  # separate from the sums, so that the exponentials can be vectorized
                scratch[first + k] = weight_of(output, mask, first + k, highest, free)
            for k in range(counts[part]):
                total += scratch[first + k]
                weighted += scratch[first + k] * (bounded(output[first + k]) - highest)
            share = 1.0 / total
            for k in range(counts[part]):
                scratch[first + k] *= share
            log_total = log(total)
            column = first + action[part]
            relative = bounded(output[column]) - highest
            log_probability += (relative if is_legal(mask, column, free) else -EXTREME) - log_total
            entropy += log_total - weighted * share
            first += counts[part]
        return log_probability, entropy

    def backward(output, mask, action, policy_weight, entropy_weight, gradient):
        """With p the probabilities: d log p(a) / dz_k = [k = a] - p_k; d entropy / dz_k = -p_k (z_k - sum of p z)."""
        first = 0
        for part in range(len(counts)):
            _, highest, free = favourite(output, mask, first, counts[part])
            mean = 0.0
            for k in range(counts[part]):
                mean += gradient[first + k] * (bounded(output[first + k]) - highest)
            for k in range(counts[part]):
                probability = gradient[first + k]
                surprise = bounded(output[first + k]) - highest - mean
                taken = 1.0 if k == action[part] and is_legal(mask, first + k, free) else 0.0
                gradient[first + k] = policy_weight * (taken - probability) - entropy_weight * (probability * surprise)
            first += counts[part]

    def log_total(output, mask, first, count):
        """Return the logarithm of the sum of all weights, the highest logit, and whether the mask is ignored."""
        _, highest, free = favourite(output, mask, first, count)
        total = 0.0
        for k in range(count):
            total += weight_of(output, mask, first + k, highest, free)
        return log(total), highest, free

    def divergence_of(output, old, mask, first, count):
        """Return one choice's divergence, and one, other: log p_k - log q_k = (z_k - one) - (z_k of old - other)."""
        total, highest, free = log_total(output, mask, first, count)
        old_total, old_highest, _ = log_total(old, mask, first, count)
        one, other, found = highest + total, old_highest + old_total, 0.0
        for k in range(count):
            log_p, log_q = bounded(output[first + k]) - one, bounded(old[first + k]) - other
            found += exp(log_p) * (log_p - log_q) if is_legal(mask, first + k, free) else 0.0
        return found, one, other, free

    def divergence(output, old, mask):
        """Return the sum of p_k (log p_k - log q_k)."""
        found = 0.0
        first = 0
        for part in range(len(counts)):
            found += divergence_of(output, old, mask, first, counts[part])[0]
            first += counts[part]
        return found

    def diverge(output, old, mask, weight, gradient):
        """With D the divergence: dD/dz_k = p_k (log p_k - log q_k - D)."""
        first = 0
        for part in range(len(counts)):
            found, one, other, free = divergence_of(output, old, mask, first, counts[part])
            for k in range(counts[part]):
                log_p, log_q = bounded(output[first + k]) - one, bounded(old[first + k]) - other
                slope = exp(log_p) * (log_p - log_q - found) if is_legal(mask, first + k, free) else 0.0
                gradient[first + k] += weight * slope
            first += counts[part]

    none = (0,) * len(counts)

    def probabilities(output, mask, into):
        evaluate(output, mask, none, into)

    functions = {
        "sample": sample, "mode": mode, "best": best, "draw": draw, "evaluate": evaluate, "backward": backward,
        "divergence": divergence, "diverge": diverge, "probabilities": probabilities,
    }  # fmt: skip
    return Head("multi_discrete", sum(counts), len(counts), "int32", counts, masked, **functions)


def gaussian(size: int) -> Head:
    """Return a head of independent normal numbers, from means and then log standard deviations, clipped to [-5, 2].

    The log-probability refers to the sampled number, before a caller clips it to the bounds of the space.
    """
    if size < 1:
        raise ValueError(f"a head needs at least one number; got size {size}")

    def sample(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        log_probability = 0.0
        for k in range(size):
            log_deviation = bounded_log_deviation(output[size + k])
            inverse = exp(-log_deviation)
            action[k] = output[k] + random.normal(rng) / inverse
            noise = (action[k] - output[k]) * inverse  # of the rounded action
            log_probability += normal_log_density(noise, log_deviation)
        return log_probability

    def mode(output, mask, action):  # noqa: ARG001
        for k in range(size):
            action[k] = output[k]

    def best(output, mask):  # noqa: ARG001
        return 0

    def draw(mask, rng, action):  # noqa: ARG001
        for k in range(size):
            action[k] = random.uniform(rng, -1.0, 1.0)

    def evaluate(output, mask, action, scratch):  # noqa: ARG001
        """Also leaves the action's standard scores and the inverse standard deviations in scratch."""
        log_probability = 0.0
        entropy = 0.0
        for k in range(size):
            log_deviation = bounded_log_deviation(output[size + k])
            inverse = exp(-log_deviation)
            noise = (action[k] - output[k]) * inverse
            scratch[k] = noise
            scratch[size + k] = inverse
            log_probability += normal_log_density(noise, log_deviation)
            entropy += log_deviation + (0.5 + HALF_LOG_TWO_PI)
        return log_probability, entropy

    def backward(output, mask, action, policy_weight, entropy_weight, gradient):  # noqa: ARG001
        """With z the standard score: d log p / d mean = z / deviation; d log p / d log-deviation = z^2 - 1."""
        for k in range(size):
            noise = gradient[k]
            gradient[k] = policy_weight * (noise * gradient[size + k])
            log_deviation = output[size + k]
            slope = policy_weight * (noise * noise - 1.0) + entropy_weight
            gradient[size + k] = returning_slope(log_deviation, slope)

    def divergence(output, old, mask):  # noqa: ARG001
        """Sum of log(s' / s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2, with means m, std s; m', s' of old."""
        found = 0.0
        for k in range(size):
            log_deviation, log_old = bounded_log_deviation(output[size + k]), bounded_log_deviation(old[size + k])
            moved, spread = (output[k] - old[k]) * exp(-log_old), exp(log_deviation - log_old)
            found += log_old - log_deviation + 0.5 * (spread * spread + moved * moved - 1.0)
        return found

    def diverge(output, old, mask, weight, gradient):  # noqa: ARG001
        """With D the divergence: dD/dm = (m - m') / s'^2,  dD/d(log s) = (s / s')^2 - 1."""
        for k in range(size):
            log_deviation, log_old = bounded_log_deviation(output[size + k]), bounded_log_deviation(old[size + k])
            inverse, spread = exp(-log_old), exp(log_deviation - log_old)
            gradient[k] += weight * ((output[k] - old[k]) * inverse * inverse)
            gradient[size + k] += returning_slope(output[size + k], weight * (spread * spread - 1.0))

    functions = {
        "sample": sample, "mode": mode, "best": best, "draw": draw, "evaluate": evaluate, "backward": backward,
        "divergence": divergence, "diverge": diverge,
    }  # fmt: skip
    return Head("gaussian", 2 * size, size, "float32", (size,), False, **functions)


def epsilon_greedy(count: int, masked: bool, epsilon: float) -> Head:
    """Return a head for one of `count` options by value: the best, or a random one with probability `epsilon`."""
    return by_values(count, masked, epsilon, 1)._replace(name="epsilon_greedy")


def by_values(count: int, masked: bool, epsilon: float, columns: int) -> Head:
    """Return an epsilon-greedy head that values an option by the mean of `columns` adjacent outputs."""
    head = categorical(count, masked)
    draw, is_free, is_legal = head.draw, *((nothing_is_legal, legal_by_mask) if masked else (always_free, legal_always))

    def best(output, mask):
        free = is_free(mask, 0, count)
        chosen, highest = 0, -2.0 * EXTREME
        for k in range(count):
            worth = bounded(mean_of(output, k, columns))
            # "Not below or equal" rather than "above": with NaNs, a legal option is chosen too.
            if is_legal(mask, k, free) and not worth <= highest:
                chosen, highest = k, worth
        return chosen

    def mode(output, mask, action):
        action[0] = best(output, mask)

    def sample(output, mask, rng, action):
        if random.uniform(rng) < epsilon:
            draw(mask, rng, action)
        else:
            action[0] = best(output, mask)
        return np.float32(0)

    def probabilities(output, mask, into):
        free = is_free(mask, 0, count)
        legal = 0
        for k in range(count):
            legal += 1 if is_legal(mask, k, free) else 0
        for k in range(count):
            into[k] = epsilon / legal if is_legal(mask, k, free) else 0.0
        into[best(output, mask)] += 1.0 - epsilon

    functions = {"sample": sample, "mode": mode, "best": best, "probabilities": probabilities}
    return head._replace(name="by_values", columns=columns, **functions)


def mean_of(values, option, columns):
    """Return the mean of an option's columns."""
    total = 0.0
    for k in range(columns):
        total += values[option * columns + k]
    return total / columns


def bounded(logit):
    """Clip a logit to +-1e30."""
    return -EXTREME if logit < -EXTREME else (EXTREME if logit > EXTREME else logit)


def bounded_log_deviation(value):
    """Clip a log standard deviation, so that gradients neither explode nor vanish."""
    if value < LOG_DEVIATION_LOW:
        return LOG_DEVIATION_LOW
    return LOG_DEVIATION_HIGH if value > LOG_DEVIATION_HIGH else value


def returning_slope(log_deviation, slope):
    """Return d(loss)/d(log standard deviation): outside the bounds, only a gradient that leads back inside.

    With no gradient at all there, as with a clamp, a state-independent parameter could not return.
    """
    outwards = (log_deviation < LOG_DEVIATION_LOW and slope > 0.0) or (
        log_deviation > LOG_DEVIATION_HIGH and slope < 0.0
    )
    return 0.0 if outwards else slope


def normal_log_density(noise, log_deviation):
    """Return the log-density at a standard score."""
    return -0.5 * (noise * noise) - log_deviation - HALF_LOG_TWO_PI


def always_free(mask, first, count):  # noqa: ARG001 - in place of nothing_is_legal
    """Return True: without masks, no mask restricts a choice."""
    return True


def legal_always(mask, column, free):  # noqa: ARG001 - in place of legal_by_mask
    """Return True: without masks, every option is legal."""
    return True


def nothing_is_legal(mask, first, count):
    """Return whether a mask forbids every option of a choice, and is therefore ignored."""
    legal = 0
    for k in range(count):
        legal |= mask[first + k]
    return legal == 0


def legal_by_mask(mask, column, free):
    """Return whether an option may be taken."""
    return free | (mask[column] != 0)
