"""Controllers that need no training, with a trained agent's `predict`: baselines and fallbacks."""

from velocirl.controllers.base_stock import BaseStock, Order
from velocirl.controllers.constant import Constant
from velocirl.controllers.controller import Controller, bound
from velocirl.controllers.loops import Loop
from velocirl.controllers.mppi import MPPI
from velocirl.controllers.pid import PID
from velocirl.controllers.uniform_random import Random

__all__ = ["MPPI", "PID", "BaseStock", "Constant", "Controller", "Loop", "Order", "Random", "bound"]
