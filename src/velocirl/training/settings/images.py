"""Image observations, and the default convolutional networks that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from velocirl.networks.observations import leaves_of
from velocirl.networks.specs import NAMED, THEN

# Networks of images by the minimum pixels of their smaller side, largest first.
NETWORKS = {36: "nature", 12: "cnn(16, 32, stride=2) mlp(128)", 3: "minatar"}
BOARD = 8  # minimum pixels of a side for two-dimensional uint8 observations to be an image
AFTER = "mlp(64, 64)"  # network after the parts of an observation


def sides(space: Space[Any]) -> tuple[int, ...] | None:
    """Return the height and width of a uint8 image, or of each image of a stack; None for any other space.

    In three dimensions, the smaller one of the first and the last is the channels, as in `networks.specs`.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3, 4):
        return None
    shape = space.shape[1:] if len(space.shape) == 4 else space.shape
    if len(shape) == 3:
        shape = shape[1:] if shape[0] <= shape[-1] else shape[:-1]
        return shape if min(shape) >= min(NETWORKS) else None
    return shape if min(shape) >= BOARD else None


def is_image(space: Space[Any]) -> bool:
    """Return whether observations are a uint8 image, or a stack of them."""
    return sides(space) is not None


def has_images(space: Space[Any]) -> bool:
    """Return whether an observation, or a part of it, is an image."""
    return any(is_image(leaf.space) for leaf in leaves_of(space))


def networks_of_images(space: Space[Any]) -> dict[str, str]:
    """Return the convolutional network for each image of an observation, by the part's name; "" for the whole."""
    return {leaf.name: _network(shown) for leaf in leaves_of(space) if (shown := sides(leaf.space)) is not None}


def image_network(space: Space[Any]) -> str | dict[str, str] | None:
    """Return the network for an observation with images: a convolutional one for each image; None without images."""
    found = networks_of_images(space)
    if not found or any(leaf.name == THEN for leaf in leaves_of(space)):
        return None
    return found.get("") or {**found, THEN: AFTER}


def described(network: str | dict[str, str], space: Space[Any]) -> str:
    """Describe in one line which network reads which images, and how to choose another."""
    images = [leaf for leaf in leaves_of(space) if is_image(leaf.space)]
    shapes = ", ".join(f"{leaf.name} {'x'.join(map(str, leaf.shape))}".strip() for leaf in images)
    read = sorted({network} if isinstance(network, str) else {network[leaf.name] for leaf in images})
    stages = "".join(f"; {name} is {NAMED[name]}" for name in read if name in NAMED)
    return f"images ({shapes}) are read by the network {', '.join(read)}{stages}; network= or hidden= choose another"


def _network(shape: tuple[int, ...]) -> str:
    return next(network for side, network in NETWORKS.items() if min(shape) >= side)
