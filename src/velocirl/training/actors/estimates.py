"""Estimates of agents with networks: an algorithm's scalar functions applied to the outputs of its networks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.targets.device_names import kind_of
from velocirl.networks.declared import Network
from velocirl.networks.mlp import MLP
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.program.fields import fields_of
from velocirl.program.rows.commands import action_rows
from velocirl.program.update import Call
from velocirl.training.actors.acting import require_masks
from velocirl.training.actors.actor import CompiledMLP
from velocirl.training.estimates import refuse_forbidden, values_at

if TYPE_CHECKING:
    from velocirl.training.deep_agent import DeepAgent

Rows = NDArray[Any]


class DeepEstimates:
    """Estimates of one agent, computed by copies of its networks with the current parameters."""

    def __init__(self, agent: DeepAgent) -> None:
        self._agent = agent
        self._readers: dict[str, Any] = {}  # by the network's name

    def values(self, seen: Rows, masks: Any, state: Any, episode_start: Any) -> NDArray[np.float32]:
        """Return V(s), or if no network learns it, the value of the deterministic action."""
        agent = self._agent
        if type(agent).state_value is None:
            if type(agent).q_value is None:
                raise ValueError(f"{agent.label} learns no values, only a policy: train an algorithm with a critic")
            return self.action_values(seen, masks, None, best=True)
        call = self._call("state_value")
        columns = {name: self._outputs(name, seen, state, episode_start) for name in self._networks(call)}
        fields = fields_of(agent.Scratch, agent.head, agent.config, len(agent.constraints))
        row = SimpleNamespace(**{one.name: np.zeros(one.shape, one.dtype) for one in fields})
        found, legal = np.zeros(len(seen), np.float32), self._masks(masks, len(seen))
        for i in range(len(seen)):
            row.mask = legal[i]
            returned = self._run(
                call, {**{name: one[i] for name, one in columns.items()}, "row": row, "mask": legal[i]}
            )
            # On-policy algorithms write it to the row, next to the values of costs.
            found[i] = getattr(row, agent.values[0]) if returned is None else returned
        return found

    def probabilities(self, seen: Rows, masks: Any, state: Any, episode_start: Any) -> list[NDArray[np.float32]]:
        """Return the probabilities of each choice's options."""
        agent, head = self._agent, self._agent.head
        if head.probabilities is None:
            raise ValueError(
                f"{agent.label} draws continuous actions, which have densities: action_probabilities needs choices"
            )
        legal = self._masks(masks, len(seen))
        outputs = self._outputs(agent.acting, seen, state, episode_start)
        found = np.zeros((len(seen), head.outputs), np.float32)
        for i in range(len(seen)):
            head.probabilities(outputs[i], legal[i], found[i])
        counts = head.counts[: head.action_size - head.numbers]
        return np.split(found[:, : sum(counts)], np.cumsum(counts)[:-1], axis=1)

    def action_values(self, seen: Rows, masks: Any, actions: Rows | None, *, best: bool = False) -> NDArray[np.float32]:
        """Return Q(s, a) of all actions, of the given `actions`, or with `best` of the deterministic actions."""
        agent, head = self._agent, self._agent.head
        if type(agent).q_value is None:
            instead = "use value(observation)" if type(agent).state_value is not None else "it learns a policy alone"
            raise ValueError(f"{agent.label} learns no Q-values: {instead}")
        call = self._call("q_value")
        reads_action = any("action" in self._declared(name).reads for name in self._networks(call))
        legal = self._masks(masks, len(seen))
        rows = None if actions is None else action_rows(agent.source.action_space, actions)
        if best:
            outputs = self._outputs(agent.acting, seen, None, None)
            rows = np.zeros((len(seen), head.action_size), head.action_dtype)
            for i in range(len(seen)):
                head.mode(outputs[i], legal[i], rows[i])
        if reads_action:
            if rows is None:
                raise ValueError(f"{agent.label} has continuous actions: give them, as q_values(observation, actions)")
            columns = {name: self._outputs(name, seen, None, None, rows) for name in self._networks(call)}
            each = [self._run(call, {name: one[i] for name, one in columns.items()}) for i in range(len(seen))]
            return np.array(each, np.float32)
        columns = {name: self._outputs(name, seen, None, None) for name in self._networks(call)}
        found = np.zeros((len(seen), head.outputs), np.float32)
        for i in range(len(seen)):
            row = {name: one[i] for name, one in columns.items()}
            found[i] = [self._run(call, {**row, "action": k}) for k in range(head.outputs)]
        found = refuse_forbidden(found, masks)
        return found if rows is None else values_at(found, rows[:, 0].astype(np.int64))

    def _call(self, name: str) -> Call:
        agent = self._agent
        function = getattr(type(agent), name)
        fields = [one.name for one in fields_of(agent.Scratch, agent.head, agent.config, len(agent.constraints))]
        return agent.resolver(fields).estimating(function)

    def _run(self, call: Call, known: dict[str, Any]) -> Any:
        known["settings"] = self._agent.config
        head = [self._agent.head] if call.takes_head else []
        return call.function(*head, *(known[name] for name in call.arguments))

    def _networks(self, call: Call) -> list[str]:
        return [name for name in call.arguments if name in self._agent.networks]

    def _declared(self, name: str) -> Network:
        found = self._agent.networks[name]
        assert isinstance(found, Network)  # noqa: S101 - the resolver knows no others here
        return found

    def _masks(self, masks: Any, count: int) -> Rows:
        head = self._agent.head
        if masks is None:
            return np.ones((count, head.options if head.masked else 1), np.int8)
        require_masks(head, masks, count)
        return masks

    def _outputs(
        self, name: str, seen: Rows, state: Any, episode_start: Any, actions: Rows | None = None
    ) -> NDArray[np.float32]:
        """Return the outputs (rows, outputs) of a network for observations encoded as for acting."""
        agent = self._agent
        encoding, moments = agent.encoding, agent.observation_moments
        inputs = np.zeros((len(seen), encoding.inputs), np.float32)
        affine = encoding.affine(moments.mean, moments.inverse_deviation)
        encoding.encode_rows(seen.reshape(len(seen), -1), affine, inputs)
        if actions is not None:
            inputs = np.concatenate([inputs, actions], axis=1, dtype=np.float32)
        reader = self._reader(name)
        if reader.state_size:
            from velocirl.training.actors.torch_actor import given_state  # needs torch

            state = given_state(reader, state, episode_start, len(seen))
        return reader.forward(inputs, state)[0]

    def _reader(self, name: str) -> Any:
        """Return a copy of a network with its current parameters and buffers."""
        agent = self._agent
        parameters, buffers = agent.network_arrays(name)
        if name not in self._readers:
            built = agent.built[name]
            if not isinstance(built, MLP):
                from velocirl.training.actors.torch_actor import ModuleReader  # needs torch

                self._readers[name] = ModuleReader(built.held)
            elif kind_of(agent.config.device) == "python":
                self._readers[name] = NumpyMLP(built)
            else:
                self._readers[name] = CompiledMLP(built, parameters.copy())
        reader = self._readers[name]
        reader.parameters_from(parameters)
        if buffers:
            reader.load_buffers(buffers)
        return reader
