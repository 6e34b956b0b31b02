"""The action from an exported JSON document alone, in plain Python, as somebody else would compute it."""

from math import erf, exp, expm1, inf, isfinite, sqrt, tanh

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else expm1(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / sqrt(2))),
    "silu": lambda x: x / (1 + exp(-x)) if x > -700 else 0.0,
    "sigmoid": lambda x: 1 / (1 + exp(-x)) if x > -700 else 0.0,
    "tanh": tanh,
    "linear": lambda x: x,
}


def act(document, observation, mask=None):
    """The entries of the action that a document says; None where an observation has none."""
    if not all(map(isfinite, observation)):
        return None
    outputs = look_up(document["table"], observation) if document["table"] else forward(document, observation)
    return [entry(one, outputs, mask) for one in document["actions"]] if all(map(isfinite, outputs)) else None


def forward(document, observation):
    x = [value for one in document["inputs"] for value in inputs(one, observation)]
    for layer in document["layers"]:
        scales = layer["scales"] or [1.0] * len(layer["biases"])
        rows = zip(layer["weights"], layer["biases"], scales, strict=True)
        x = [scale * sum(w * v for w, v in zip(row, x, strict=True)) + bias for row, bias, scale in rows]
        x = x if layer["norm"] is None else normalised(x, **layer["norm"])
        x = [ACTIVATIONS[layer["activation"]](value) for value in x]
    return x


def normalised(x, scale, shift, epsilon):
    mean = sum(x) / len(x)
    deviation = sqrt(sum((value - mean) ** 2 for value in x) / len(x) + epsilon)
    return [(value - mean) / deviation * a + b for value, a, b in zip(x, scale, shift, strict=True)]


def inputs(one, observation):
    if one["kind"] == "code":
        return [float(observation[one["first"]] == one["start"] + k) for k in range(one["size"])]
    if one["kind"] == "numbers":
        return [value * one["factor"] for value in observation[one["first"] :][: one["size"]]]
    triples = zip(observation[one["first"] :], one["centre"], one["inverse_scale"], strict=False)
    limit = inf if one["limit"] is None else one["limit"]
    return [min(max((value - centre) * inverse, -limit), limit) for value, centre, inverse in triples]


def look_up(table, observation):
    state = 0
    for value, size, start in zip(observation, table["sizes"], table["starts"], strict=True):
        state = state * size + value - start
    if table["states"] is None:
        return table["values"][state]
    return table["values"][table["states"].index(state)] if state in table["states"] else [0.0] * 100


def entry(one, outputs, mask):
    if one["kind"] == "choice":
        columns = range(one["column"], one["column"] + one["count"])
        legal = [c for c in columns if mask is None or mask[c]] or list(columns)
        return one["start"] + max(legal, key=lambda c: outputs[c]) - one["column"]
    value = tanh(outputs[one["column"]]) if one["squashed"] else outputs[one["column"]]
    value = value if one["low"] is None else max(value, one["low"])
    value = value if one["high"] is None else min(value, one["high"])
    return one["centre"] + one["reach"] * value
