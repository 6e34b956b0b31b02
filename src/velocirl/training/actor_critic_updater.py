"""An actor, two critics, their optimisers, frozen copies and a temperature, for the native machine."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiling import add_kernel, compile_loop, learning_translator
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.passes import passes
from velocirl.optim.optimisers import Optimiser
from velocirl.training.actor_critic_updating import LINE, ActorCriticLearning, actor_critic_update
from velocirl.training.deep_agent import fitting_all
from velocirl.training.descending import allocate_trained, descent
from velocirl.training.off_policy import METRICS, ActorCriticLoss
from velocirl.training.on_policy import pack_loop


class ActorCriticUpdater:
    """What learns from a batch, for as many threads as there are."""

    def __init__(
        self,
        actor: MLP,
        critic: MLP,  # both critics, of [observation | action]
        parameters: NDArray[np.float32],  # of the actor: the agent's own, updated in place
        critic_parameters: NDArray[np.float32],
        optimiser: Optimiser,
        loss: ActorCriticLoss,
        settings: Any,  # of the loss: a NamedTuple of float32
        *,
        temperature: float,  # at first
        batch_size: int,
        threads: int,
        seed: int,
    ) -> None:
        if actor.activation != critic.activation:
            raise ValueError(f"actor and critics must share their activation: {actor.activation}, {critic.activation}")
        self.settings, self._has_frozen_actor = settings, loss.frozen_actor
        self.actor, self.critic = (allocate_trained(one, optimiser, threads) for one in (parameters, critic_parameters))
        self.frozen, self.frozen_actor = critic_parameters.copy(), parameters.copy()
        self.temperature = np.zeros((1 + optimiser.slots, 1), np.float32)
        self.temperature[0] = log(temperature)
        self._slopes = np.zeros((threads, LINE))
        self.rng = random.streams(seed, batch_size)
        self.functions = passes(activation_from(actor.activation))
        self.translator = learning_translator("learner")
        add_passes(self.translator, self.functions)
        descending = descent(self.functions, optimiser.rule)
        for kernel in (*descending.kernels, descending.improve, descending.thaw):
            # Steps are taken of two networks each, and what is called is compiled once; their arrays are shared.
            disjoint = kernel in descending.kernels
            add_kernel(self.translator, kernel, disjoint=disjoint)  # pyright: ignore[reportArgumentType]
        size = critic.inputs - actor.inputs
        self.update = actor_critic_update(loss, self.functions, descending, optimiser.rule, actor.inputs, size)
        self._networks = actor, critic
        # Laid out for the products once for all threads, each of which packs a part.
        self._packed = [network.workspace().packed for network in (actor, actor, critic, critic)]
        self.learning = [self._learning(size) for _ in range(threads)]
        self.acting = actor.plan, self.learning[0].actor_work
        loop: Any = pack_loop(self.functions)
        arguments = actor.plan, parameters, self.learning[0].actor_work
        self._pack = compile_loop(loop, arguments, self.translator, before=lambda: None)

    def _learning(self, size: int) -> ActorCriticLearning:
        """What one thread works on."""
        actor, critic = self._networks
        works = [
            network.workspace()._replace(packed=packed)
            for network, packed in zip((actor, actor, critic, critic), self._packed, strict=True)
        ]
        return ActorCriticLearning(
            actor.plan,
            critic.plan,
            *works,
            actor=self.actor,
            critic=self.critic,
            frozen=self.frozen,
            frozen_actor=self.frozen_actor,
            temperature=self.temperature,
            slopes=self._slopes,
            rng=self.rng,
            noise=np.zeros((ROWS, size), np.float32),
            actions=np.zeros((ROWS, size), np.float32),
            log_probabilities=np.zeros(ROWS, np.float32),
            metrics=np.zeros(METRICS, np.float32),
            totals=np.zeros(METRICS),
        )

    @property
    def learnt(self) -> list[NDArray[np.float32]]:
        """All parameters that learn, for the guard against numbers that are none."""
        return [self.actor.parameters, self.critic.parameters, self.temperature]

    @property
    def totals(self) -> list[NDArray[np.float64]]:
        """The sums of the metrics, of each thread."""
        return [own.totals for own in self.learning]

    def take(self) -> None:
        """Lay the parameters of all networks out anew, after something else than an update changed them."""
        one = self.learning[0]
        self._pack(one.actor_plan, self.actor.parameters, one.actor_work)
        self._pack(one.actor_plan, self.frozen_actor, one.dreamer_work)
        self._pack(one.critic_plan, self.critic.parameters, one.critic_work)
        self._pack(one.critic_plan, self.frozen, one.frozen_work)

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates, besides the actor's own parameters; copies."""
        return {name: array.copy() for name, array in {**self._arrays(), "learner.rng": self.rng}.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        own = self._arrays()
        fitting_all(state, own)
        for name, array in own.items():
            array[...] = state[name]
        saved = state.get("learner.rng")
        if saved is not None and saved.shape == self.rng.shape:  # else it comes from another device
            self.rng[...] = saved

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The same names on every device."""
        arrays = {
            "learner.moments": self.actor.moments,
            "learner.frozen": self.frozen,
            "learner.temperature": self.temperature.reshape(-1),
            "critic.parameters": self.critic.parameters,
            "critic.moments": self.critic.moments,
        }
        return {**arrays, "learner.frozen_actor": self.frozen_actor} if self._has_frozen_actor else arrays
