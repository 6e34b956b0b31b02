"""Base-stock control: order up to a level, counting what is already in transit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.controller import Controller, by_actuator, within
from velocirl.controllers.layout import Layout


@dataclass(frozen=True)
class Order:
    """One order of a base-stock policy: lifts the inventory position to a level through an actuator.

        order = gain * max(level - position, 0),   position = sum(plus) - sum(minus)

    `plus` are signals such as stock on hand and goods in transit, `minus` signals such as a backlog. The level is a
    number, or the name of a signal that carries it. With a gain below 1, only a fraction of the gap is ordered at once.
    """

    actuator: str | int
    level: float | str
    plus: tuple[str | int, ...]
    minus: tuple[str | int, ...] = ()
    gain: float = 1.0

    def __post_init__(self) -> None:
        if not self.plus:
            raise ValueError(f"the order {self.actuator!r} needs plus=: the signals that make up its stock")
        if not (isfinite(self.gain) and self.gain > 0.0):
            raise ValueError(f"the order {self.actuator!r}: gain must be above 0, got {self.gain}")


class BaseStock(Controller):
    """Base-stock (order-up-to) policy for one or several orders; other actuators stay at their `bias`."""

    def __init__(self, *orders: Order, bias: Mapping[str | int, float] | None = None) -> None:
        if not orders:
            raise ValueError("a BaseStock needs an order: BaseStock(Order(actuator, level, plus=(signal,)))")
        self.orders, self.bias = orders, dict(bias or {})

    def __repr__(self) -> str:
        rest = f", bias={self.bias}" if self.bias else ""
        return f"BaseStock({', '.join(map(repr, self.orders))}{rest})"

    def settle(self, layout: Layout, environment: Any) -> None:  # noqa: ARG002 - as others need it
        """Find the signals and actuators of all orders."""
        layout.require_numbers("BaseStock")
        width, count = (layout.observation.shape or (0,))[0], len(self.orders)
        # Each order's gap as a linear function of the observation.
        self._weights, self._levels = np.zeros((width, count)), np.zeros(count)
        self._actuators = np.array([layout.actuator(order.actuator) for order in self.orders])
        if len(set(self._actuators.tolist())) < count:
            raise ValueError(f"{layout.id}: two orders of this BaseStock move the same actuator")
        for place, order in enumerate(self.orders):
            for sign, names in ((-1.0, order.plus), (1.0, order.minus)):
                for name in names:
                    self._weights[layout.signal(name), place] += sign
            if isinstance(order.level, str):
                self._weights[layout.signal(order.level), place] += 1.0
            else:
                self._levels[place] = order.level
        self._gains = np.array([order.gain for order in self.orders])
        self._resting = by_actuator(layout, self.bias, "BaseStock", set(self._actuators.tolist()))

    def act(self, observations: Any, state: Any, starts: NDArray[np.bool_], masks: Any) -> tuple[NDArray[Any], None]:  # noqa: ARG002
        """Compute each environment's orders."""
        gaps = self._levels + np.asarray(observations, np.float64) @ self._weights
        actions = np.tile(self._resting, (len(gaps), 1))
        actions[:, self._actuators] = self._gains * np.maximum(gaps, 0.0)
        return within(self.layout, actions), None
