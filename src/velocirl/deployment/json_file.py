"""Controller as strict JSON, for programs in any language.

The layout, in the order in which an action is computed:

- `format` ("velocirl controller") and `format_version` (1); `environment`, `algorithm`, `steps`, `velocirl` (version);
- `observation`: `space` as text, and `signals`, the name and unit of each number of its raw row;
- `inputs`: the inputs of the network, concatenated. `{"kind": "numbers", "first": i, "size": n, "factor": f}` are
  observation[i..i+n-1] * f. `{"kind": "normalised", "first", "centre", "inverse_scale", "limit"}` are
  (observation - centre) * inverse_scale, clipped to +-limit (null is no limit: for numbers scaled by the bounds of
  their space). `{"kind": "code", "first", "start", "size"}` are `size` inputs, 1 at index observation[first] - start
  and 0 elsewhere;
- `layers`: y = activation(norm(weights @ x + biases)), with `weights` a list for each output. With `scales` (int8),
  multiply each list by the scale of its output. `norm` is null, or `{"scale", "shift", "epsilon"}` of a layer norm;
- or `table`, for integer observations: `sizes` and `starts` of the digits of a state, `states` (ascending, or null
  with a row for each) and `values`, a list for each of them. All values of a missing state are equal;
- `actions`, one entry for each number of an action. `{"kind": "choice", "column": c, "count": n, "start": s}` is s +
  the index of the largest of outputs[c..c+n-1], the first of equal ones. If `masked` is true, options that a mask
  forbids are left out. `{"kind": "number", "column", "squashed", "low", "high", "centre", "reach"}` is centre + reach *
  (the output, or its tanh if squashed, clipped to low and high; null is no bound). Each has a `name` and a `unit`.

An observation is invalid if one of its numbers is not finite (NaN or infinite, even if a limit would clip it), or has
no index among the options of a code or a table. A program must refuse it, as `predict`, C and ONNX do. C and ONNX also
refuse outputs that are not finite.
"""

from __future__ import annotations

import dataclasses
from math import isfinite
from typing import Any

import numpy as np

from velocirl.deployment.controller import Choice, Code, Controller, Input, Layer, Normalised, Number, Table, layers_in
from velocirl.runs.state_file import strict_json

FORMAT, VERSION = "velocirl controller", 1


def json_text(controller: Controller) -> str:
    """Return the document as text."""
    return strict_json(as_document(controller)) + "\n"


def as_document(controller: Controller) -> dict[str, Any]:
    """Return all numbers of a controller, in the layout of the module's docstring."""
    policy = controller.policy
    by_table = isinstance(policy, Table)
    layers = () if by_table else layers_in(controller, "JSON")
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "environment": controller.environment,
        "algorithm": controller.algorithm,
        "steps": controller.steps,
        "velocirl": controller.version,
        "observation": {
            "space": str(controller.observation_space),
            "signals": [signal._asdict() for signal in controller.signals],
        },
        "inputs": [_input(one) for one in controller.inputs],
        "layers": [_layer(layer) for layer in layers],
        "table": _table(policy) if isinstance(policy, Table) else None,
        "action_space": str(controller.action_space),
        "masked": controller.masked,
        "actions": [_action(one) for one in controller.actions],
    }


def _input(one: Input) -> dict[str, Any]:
    kind = "code" if isinstance(one, Code) else "normalised" if isinstance(one, Normalised) else "numbers"
    return {"kind": kind, **_plain(one)}


def _layer(layer: Layer) -> dict[str, Any]:
    return {**_plain(layer), "norm": None if layer.norm is None else _plain(layer.norm)}


def _action(one: Choice | Number) -> dict[str, Any]:
    values = {name: value for name, value in _plain(one).items() if name != "columns"}
    if isinstance(one, Number):
        values |= {name: values[name] if isfinite(values[name]) else None for name in ("low", "high")}
    return {"kind": "choice" if isinstance(one, Choice) else "number", **values}


def _table(table: Table) -> dict[str, Any]:
    values = _plain(table)
    return {"sizes": values["sizes"], "starts": values["starts"], "states": values["keys"], "values": values["values"]}


def _plain(record: Any) -> dict[str, Any]:
    """Return the fields of a record, with arrays and tuples as lists."""
    found = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
