"""Controller as an ONNX model, from observations to actions in the formats of their spaces.

Inputs are `observation` (rows, ...) or the parts of a Dict or Tuple by name and, if options can be forbidden, `mask`
(rows, options). Outputs are `action` (rows, ...), or the parts of a Dict or Tuple by name, and `valid` (rows,). `valid`
is false if an observation has no action: it is not finite, has an integer outside of its space, or makes the network
overflow. An invalid action is NaN for a number, and one below the first option for a choice.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from velocirl.deployment.c_words import identifier
from velocirl.deployment.controller import Choice, Code, Controller, Layer, Module, Network, Normalised, Number, Table
from velocirl.engine.action_parts import has_parts, parts_of
from velocirl.networks.observations import Leaf, leaves_of

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise ValueError('ONNX needs a package of that name: pip install "velocirl[onnx]"') from error

OPSET, IR = 17, 8  # of 2022: supported by runtimes for years
MOST_STATES = 20_000_000
FORBIDDEN = -3.0e38  # finite, and below any output
ENCODED, OUTPUTS, MASK, VALID = "encoded", "outputs", "mask", "valid"


def onnx_bytes(controller: Controller, name: str | None = None) -> bytes:
    """Return the model, validated by onnx's own checker."""
    graph = Graph()
    leaves = leaves_of(controller.observation_space)
    read = {leaf.name: graph.node("Flatten", [_called(leaf)], axis=1) for leaf in leaves}
    policy = controller.policy
    if isinstance(policy, Table):
        worth, tests = _by_table(graph, policy, leaves, read)
    else:
        inputs, tests = _encoded(graph, controller, leaves, read)
        worth = _network(graph, policy, inputs)
        tests.append(graph.finite(worth))
    valid = graph.all(tests)
    results = _actions(graph, controller, worth, valid)
    graph.node("Reshape", [valid, graph.constant([-1], np.int64)], VALID)
    results.append(_value(VALID, np.bool_, ()))
    inputs = [_value(_called(leaf), leaf.space.dtype, leaf.shape) for leaf in leaves]
    if controller.masked:
        inputs.append(_value(MASK, np.int8, (controller.options,)))
    made = helper.make_graph(
        graph.nodes, identifier(name or controller.environment), inputs, results, list(graph.constants.values())
    )
    model = helper.make_model(made, producer_name="velocirl", producer_version=controller.version, ir_version=IR,
                              opset_imports=[helper.make_opsetid("", OPSET)])  # fmt: skip
    about = {"environment": controller.environment, "algorithm": controller.algorithm, "steps": str(controller.steps)}
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


class Graph:
    """Graph builder: nodes in the order of computation, and constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def node(self, operation: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node. Returns the name of its output."""
        output = f"{operation.lower()}_{len(self.nodes)}" if output is None else output
        self.nodes.append(helper.make_node(operation, inputs, [output], **attributes))
        return output

    def constant(self, values: Any, kind: Any = None) -> str:
        """Add a constant array. Returns its name."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(np.asarray(values, kind)), name)
        return name

    def columns(self, rows: str, first: int, count: int) -> str:
        """Select some columns of rows."""
        ends = [self.constant([value], np.int64) for value in (first, first + count, 1)]
        return self.node("Slice", [rows, *ends])

    def finite(self, numbers: str) -> str:
        """Test elementwise whether numbers are finite."""
        return self.node("Less", [self.node("Abs", [numbers]), self.constant(np.inf, np.float32)])

    def all(self, tests: list[str]) -> str:
        """Test whether all columns of all tests are true: (rows, 1)."""
        joined = self.node("Concat", tests, axis=1) if len(tests) > 1 else tests[0]
        least = self.node("ReduceMin", [self.cast(joined, np.int32)], axes=[1], keepdims=1)
        return self.cast(least, np.bool_)

    def cast(self, values: str, kind: Any) -> str:
        """Cast values to another type."""
        return self.node("Cast", [values], to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def _encoded(graph: Graph, controller: Controller, leaves: list[Leaf], read: dict[str, str]) -> tuple[str, list[str]]:
    """Add the network's input (rows, inputs) and tests of the observation, each (rows, columns)."""
    parts, tests = [], []
    for one in controller.inputs:
        leaf = next(leaf for leaf in leaves if leaf.start <= one.first < leaf.start + leaf.size)
        count = 1 if isinstance(one, Code) else one.size
        numbers = graph.columns(read[leaf.name], one.first - leaf.start, count)
        if isinstance(one, Code):
            options = graph.constant(np.arange(one.start, one.start + one.size)[None], np.int64)
            code = graph.cast(graph.node("Equal", [graph.cast(numbers, np.int64), options]), np.float32)
            tests.append(graph.cast(graph.node("ReduceMax", [code], axes=[1], keepdims=1), np.bool_))
            parts.append(code)
            continue
        numbers = graph.cast(numbers, np.float32)
        if np.dtype(leaf.space.dtype).kind == "f":
            tests.append(graph.finite(numbers))
        if isinstance(one, Normalised):
            apart = graph.node("Sub", [numbers, graph.constant(one.centre)])
            scaled = graph.node("Mul", [apart, graph.constant(one.inverse_scale)])
            if one.limit is not None:
                ends = [graph.constant(end, np.float32) for end in (-one.limit, one.limit)]
                scaled = graph.node("Clip", [scaled, *ends])
            parts.append(scaled)
        else:
            parts.append(graph.node("Mul", [numbers, graph.constant(one.factor, np.float32)]))
    return graph.node("Concat", parts, ENCODED, axis=1), tests


def _network(graph: Graph, policy: Network | Module, values: str) -> str:
    if isinstance(policy, Module):
        from velocirl.deployment.torch_graph import module_graph  # needs torch

        found = module_graph(policy, ENCODED, OUTPUTS, OPSET)
        graph.nodes += found.node
        graph.constants |= {one.name: one for one in found.initializer}
        return OUTPUTS
    for layer in policy.layers:
        values = _layer(graph, layer, values)
    return values


def _layer(graph: Graph, layer: Layer, values: str) -> str:
    weights = graph.constant(layer.weights)
    if layer.scales is not None:
        weights = graph.node("DequantizeLinear", [weights, graph.constant(layer.scales)], axis=0)
    values = graph.node("Gemm", [values, weights, graph.constant(layer.biases)], transB=1)
    if layer.norm is not None:
        terms = [graph.constant(layer.norm.scale), graph.constant(layer.norm.shift)]
        values = graph.node("LayerNormalization", [values, *terms], axis=-1, epsilon=layer.norm.epsilon)
    simple = {"relu": "Relu", "elu": "Elu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
    if layer.activation in simple:
        return graph.node(simple[layer.activation], [values])
    if layer.activation == "leaky_relu":
        return graph.node("LeakyRelu", [values], alpha=0.01)
    if layer.activation == "silu":
        return graph.node("Mul", [values, graph.node("Sigmoid", [values])])
    if layer.activation == "gelu":
        inner = graph.node("Mul", [values, graph.constant(np.sqrt(0.5), np.float32)])
        share = graph.node("Add", [graph.node("Erf", [inner]), graph.constant(1.0, np.float32)])
        half = graph.node("Mul", [values, graph.constant(0.5, np.float32)])
        return graph.node("Mul", [half, share])
    return values  # linear


def _by_table(graph: Graph, table: Table, leaves: list[Leaf], read: dict[str, str]) -> tuple[str, list[str]]:
    """Add the ranks of the actions in a state (rows, actions), and tests of the observation."""
    count = prod(table.sizes)
    if count * table.values.shape[1] > MOST_STATES:
        raise ValueError(
            f"ONNX would need a row for each of {count:,} states, of which {len(table.values):,} were met: export the"
            " table as c or json"
        )
    ranks = np.zeros((count, table.values.shape[1]), np.float32)
    places = slice(None) if table.keys is None else table.keys
    ranks[places] = -np.argsort(table.order, axis=1)
    digits = [graph.cast(read[leaf.name], np.int64) for leaf in leaves]
    row = graph.node("Concat", digits, axis=1)
    weights = [prod(table.sizes[k + 1 :]) for k in range(len(table.sizes))]
    shifted = graph.node("Sub", [row, graph.constant(table.starts, np.int64)])
    weighed = graph.node("Mul", [shifted, graph.constant(weights, np.int64)])
    states = graph.node("ReduceSum", [weighed, graph.constant([1], np.int64)], keepdims=0)
    first, sizes = graph.constant(0, np.int64), graph.constant(table.sizes, np.int64)
    inside = graph.node("And", [graph.node("GreaterOrEqual", [shifted, first]), graph.node("Less", [shifted, sizes])])
    known = graph.node("Reshape", [graph.all([inside]), graph.constant([-1], np.int64)])
    states = graph.node("Where", [known, states, first])  # invalid observations use state 0
    return graph.node("Gather", [graph.constant(ranks), states], axis=0), [inside]


def _actions(graph: Graph, controller: Controller, worth: str, valid: str) -> list[Any]:
    """Add the outputs of the model. Returns their descriptions."""
    results, place = [], 0
    several = has_parts(controller.action_space)
    for part in parts_of(controller.action_space):
        entries = controller.actions[place : place + part.size]
        place += part.size
        made = [_where_valid(graph, valid, one, _entry(graph, controller, one, worth)) for one in entries]
        row = graph.node("Concat", made, axis=1) if len(made) > 1 else made[0]
        name = f"action/{part.name}" if several else "action"
        shaped = graph.node("Reshape", [row, graph.constant([-1, *part.shape], np.int64)])
        kind = np.dtype(part.space.dtype)
        graph.node("Cast", [shaped], name, to=helper.np_dtype_to_tensor_dtype(kind))
        results.append(_value(name, kind, part.shape))
    return results


def _where_valid(graph: Graph, valid: str, one: Choice | Number, entry: str) -> str:
    """Return an entry of an action, replaced by the invalid value where `valid` is false."""
    none = graph.constant(np.nan, np.float32) if isinstance(one, Number) else graph.constant(one.start - 1, np.int64)
    return graph.node("Where", [valid, entry, none])


def _entry(graph: Graph, controller: Controller, one: Choice | Number, worth: str) -> str:
    """Return an entry of an action, (rows, 1)."""
    if isinstance(one, Number):
        number = graph.columns(worth, one.column, 1)
        number = graph.node("Tanh", [number]) if one.squashed else number
        ends = [graph.constant(np.clip(end, *_finite()), np.float32) for end in (one.low, one.high)]
        stretched = graph.node("Mul", [graph.node("Clip", [number, *ends]), graph.constant(one.reach, np.float32)])
        return graph.node("Add", [stretched, graph.constant(one.centre, np.float32)])
    options = graph.columns(worth, one.column * one.columns, one.count * one.columns)
    if one.columns > 1:
        apart = graph.node("Reshape", [options, graph.constant([-1, one.count, one.columns], np.int64)])
        options = graph.node("ReduceMean", [apart], axes=[2], keepdims=0)
    if controller.masked:
        legal = graph.cast(graph.columns(MASK, one.column, one.count), np.int32)
        legal = graph.node("Abs", [legal])
        none = graph.node(
            "Equal", [graph.node("ReduceMax", [legal], axes=[1], keepdims=1), graph.constant(0, np.int32)]
        )
        allowed = graph.node("Or", [graph.node("Greater", [legal, graph.constant(0, np.int32)]), none])
        options = graph.node("Where", [allowed, options, graph.constant(FORBIDDEN, np.float32)])
    best = graph.node("ArgMax", [options], axis=1, keepdims=1)
    return graph.node("Add", [best, graph.constant(one.start, np.int64)])


def _finite() -> tuple[Any, Any]:
    limits = np.finfo(np.float32)
    return limits.min, limits.max


def _value(name: str, kind: Any, shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["rows", *shape])


def _called(leaf: Leaf) -> str:
    return leaf.name or "observation"
