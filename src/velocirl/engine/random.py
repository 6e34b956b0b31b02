"""Random numbers for one environment: `random.uniform(rng, low, high)`, the same stream on every target.

Each environment has a xoroshiro128++ generator (Blackman and Vigna, 2019): 128 bits of state, period 2^128 - 1, no
known failure in BigCrush or PractRand. Streams start at points hashed from (seed, environment). Two of a million
streams of 2^40 samples therefore overlap with a probability below 2^-47. The arithmetic uses masks, so that the same
source is correct for Python's unbounded integers and for compiled 64-bit ones.
"""

from collections.abc import Sequence
from math import cos, log, sqrt

import numpy as np
from numpy.typing import NDArray

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
TWO_PI = 6.283185307179586


def rotate(word, distance):
    return ((word << distance) | (word >> (64 - distance))) & MASK


def bits(rng):
    """Return the next 64 random bits."""
    first = int(rng[0])
    second = int(rng[1])
    result = (rotate((first + second) & MASK, 17) + first) & MASK
    second ^= first
    rng[0] = rotate(first, 49) ^ second ^ ((second << 21) & MASK)
    rng[1] = rotate(second, 28)
    return result


def uniform(rng, low=0.0, high=1.0):
    """Sample a number in [low, high), one of 2^24 equally spaced ones: as fine as single precision near `high`."""
    share = np.float32(bits(rng) >> 40) * np.float32(5.9604644775390625e-08)
    value = low + product(high - low, share)
    return value if value < high else low + (high - low) * np.float32(0)  # rounding may have reached the upper end


def product(one, other):
    """Return a product that is rounded before anything is added to it.

    A GPU would fuse multiplication and addition, and one in seven numbers would differ from the CPU's in the last
    digit.
    """
    return one * other


def normal(rng, mean=0.0, deviation=1.0):
    """Sample a normally distributed number (Box and Muller)."""
    radius = sqrt(-2.0 * log(1.0 - uniform(rng)))
    return mean + deviation * (radius * cos(TWO_PI * uniform(rng)))


def integer(rng, low, high):
    """Sample an integer in [low, high), for ranges below 2^31; the bias is below range / 2^32."""
    return low + np.int64(((bits(rng) >> 32) * int(high - low)) >> 32)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64 bits bijectively (the finalizer of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def require_seed(seed: object) -> int:
    """Return the seed as an int; raises ValueError beyond 64 bits, which would silently alias another seed."""
    if isinstance(seed, (int, np.integer)) and 0 <= seed <= MASK:
        return int(seed)
    raise ValueError(f"seed must be a whole number from 0 to 2**64 - 1, got {seed!r}")


def streams(seed: int | Sequence[int], count: int, first: int = 0) -> NDArray[np.uint64]:
    """Return the starting states of `count` streams, (count, 2): of one seed, or the first streams of several seeds.

    With one seed, they are the streams from number `first` on.
    """
    if isinstance(seed, Sequence):
        seeds, copies = np.array([require_seed(one) for one in seed], np.uint64), np.zeros(count, np.uint64)
    else:
        seeds, copies = np.full(count, require_seed(seed), np.uint64), np.arange(first, first + count, dtype=np.uint64)
    position = 2 * copies[:, None] + np.array([1, 2], np.uint64)
    states = _mix(_mix(seeds + np.uint64(GOLDEN))[:, None] + position * np.uint64(GOLDEN))
    states[(states == 0).all(axis=1)] = 1  # the one state that xoroshiro never leaves
    return states
