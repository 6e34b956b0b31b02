"""A controller as strict JSON, for programs of one's own.

The layout, in the order in which an action is computed:

- `format` ("velocirl controller") and `format_version` (1); `environment`, `algorithm`, `steps`, `velocirl` (version);
- `observation`: `space` as text, and `signals`, the name and unit of each number of its raw row;
- `inputs`: what the network reads, one after the other. `{"kind": "numbers", "first": i, "size": n, "factor": f}` are
  observation[i..i+n-1] * f; `{"kind": "normalised", "first", "centre", "inverse_scale", "limit"}` are
  (observation - centre) * inverse_scale, held within +-limit (null is no limit: of numbers that are scaled by the
  bounds of their space); `{"kind": "code", "first", "start", "size"}` are `size` inputs, 1 at place
  observation[first] - start and else 0;
- `layers`: y = activation(norm(weights @ x + biases)), with `weights` a list for each output; with `scales` (int8),
  those lists count times the scale of their output; `norm` is null, or `{"scale", "shift", "epsilon"}` of a layer norm;
- or `table`, where observations are whole numbers: `sizes` and `starts` of the digits of a state, `states` (ascending,
  or null where there is a row for each) and `values`, a list for each of them; a state that is missing has equal
  values;
- `actions`, one entry for each number of an action. `{"kind": "choice", "column": c, "count": n, "start": s}` is s +
  the place of the largest of outputs[c..c+n-1], the first of equal ones; of those a mask forbids, none, where `masked`
  is true. `{"kind": "number", "column", "squashed", "low", "high", "centre", "reach"}` is centre + reach * (the output,
  its tanh where squashed, held within low and high; null is no bound). Each has a `name` and a `unit`.

An observation has no action, and a program must refuse it as `predict`, C and ONNX do, where one of its numbers is not
finite (NaN or infinite, also where a limit would hold it), or has no place among the options of a code or a table.
C and ONNX also refuse outputs that are not finite.
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
    """The document, as text."""
    return strict_json(as_document(controller)) + "\n"


def as_document(controller: Controller) -> dict[str, Any]:
    """All numbers of a controller, as the head of this file says."""
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
    """The fields of a record, arrays and tuples as lists."""
    found = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
