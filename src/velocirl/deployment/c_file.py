"""Controller as one C99 file that needs only math.h, for targets without Python.

The function keeps no state between calls and allocates no memory. Text from an environment appears only in comments, or
becomes part of a name by `identifier`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from velocirl.deployment.c_words import array, comment, identifier, real
from velocirl.deployment.controller import Choice, Code, Controller, Layer, Normalised, Number, Table, layers_in
from velocirl.networks.observations import WHOLE_LIMIT, is_structured

MOST_NUMBERS = 20_000_000  # weights or table entries; compilers take minutes for more
MOST_LISTED = 64  # signals named by the first comment

ACTIVATIONS = {  # of number x; as in networks.activations
    "relu": "x < 0.0f ? 0.0f : x",
    "leaky_relu": "x < 0.0f ? 0.01f * x : x",
    "elu": "x > 0.0f ? x : expm1f(x)",
    "gelu": "0.5f * x * (1.0f + erff(0.707106781f * x))",
    "silu": "x < 0.0f ? x * expf(x) / (1.0f + expf(x)) : x / (1.0f + expf(-x))",
    "tanh": "tanhf(x)",
    "sigmoid": "x < 0.0f ? expf(x) / (1.0f + expf(x)) : 1.0f / (1.0f + expf(-x))",
}
OF_MATH = ("expm1f(", "erff(", "expf(", "tanhf(", "sqrtf(")


def c_text(controller: Controller, name: str | None = None) -> str:
    """Return the C file; raise for controllers that C cannot express, by name."""
    _check(controller)
    name = identifier(controller.environment if name is None else name)
    table = isinstance(controller.policy, Table)
    body = _table_body(controller) if table else _network_body(controller, name)
    helpers = [] if table else _helpers(controller, name)
    needs_math = any(word in part for part in (*helpers, *body) for word in OF_MATH)
    prototype = f"int {name}_predict({_arguments(controller)})"
    sizes = {"OBSERVATIONS": len(controller.signals), "ACTIONS": len(controller.actions)}
    if controller.masked:
        sizes["OPTIONS"] = controller.options
    parts = [
        _opening(controller, prototype, needs_math),
        *(["#include <math.h>"] if needs_math else []),
        "\n".join(f"#define {name.upper()}_{what} {size}" for what, size in sizes.items()),
        f"{prototype};",
        *helpers,
        "\n".join([prototype, "{", *(f"    {line}" if line else "" for line in "\n".join(body).split("\n")), "}"]),
    ]
    return "\n\n".join(parts) + "\n"


def _check(controller: Controller) -> None:
    if is_structured(controller.observation_space):
        raise ValueError(
            f"C reads observations that are one array, and those of {controller.environment} are"
            f" {type(controller.observation_space).__name__}: export it as onnx or json"
        )
    policy = controller.policy
    if isinstance(policy, Table):
        numbers = policy.values.size
        if not numbers:
            raise ValueError("the table is empty, so that there is nothing to act by: train it first")
        largest = max(abs(start) + size for size, start in zip(policy.sizes, policy.starts, strict=True))
    else:
        numbers = sum(layer.weights.size for layer in layers_in(controller, "a file of C"))
        largest = max([abs(one.start) + one.size for one in controller.inputs if isinstance(one, Code)], default=0)
    if numbers > MOST_NUMBERS:
        raise ValueError(f"a file of C with {numbers:,} numbers is more than compilers like: at most {MOST_NUMBERS:,}")
    if largest > WHOLE_LIMIT:
        raise ValueError(f"C reads observations as floats, which hold whole numbers up to {WHOLE_LIMIT:,} alone")


def _arguments(controller: Controller) -> str:
    mask = "const signed char *mask, " if controller.masked else ""
    return f"const float *observation, {mask}float *action"


def _opening(controller: Controller, prototype: str, needs_math: bool) -> str:
    """Return the comment that describes the controller and how to call it."""
    what = "table" if isinstance(controller.policy, Table) else "network"
    lines = [
        comment(f"A controller of {controller.environment}: the {what} that {controller.algorithm} learnt in"),
        comment(f"{controller.steps:,} {controller.counted}. Written by velocirl {controller.version}."),
        "",
        f"    {prototype};",
        "",
        f"`observation` has {len(controller.signals)} numbers:",
        *_listed([_said(one.name, one.unit) for one in controller.signals]),
        f"`action` gets {len(controller.actions)}:",
        *_listed([_said_action(one) for one in controller.actions]),
    ]
    if controller.masked:
        lines.append(
            f"`mask` has {controller.options} entries, 0 for an option that is forbidden; it may be null, and one that"
        )
        lines.append("forbids all options of a choice counts for nothing.")
    lines += [
        "",
        "The action is the best one; nothing is drawn. Gives 0, or 1 where there is none: a number of the observation",
        "is not finite or no such whole number as it should be, or the network overflows. Then `action` is left as it",
        "was, and what to do is the caller's to say.",
        f"C99{', with math.h' if needs_math else ' without any library'}; no memory is allocated, nothing is kept"
        " between calls, so threads may share it.",
        "-ffast-math would take the test for finite numbers away.",
    ]
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in lines), " */"])


def _listed(said: Sequence[str]) -> list[str]:
    shown = [f"    {place}  {text}" for place, text in enumerate(said[:MOST_LISTED])]
    return shown if len(said) <= MOST_LISTED else [*shown, f"    and so on, up to {len(said) - 1}"]


def _said(name: str, unit: str) -> str:
    return comment(f"{name} [{unit}]" if unit not in ("", "1") else name)


def _said_action(one: Choice | Number) -> str:
    said = _said(one.name, one.unit)
    if isinstance(one, Choice):
        return f"{said}: a whole number from {one.start} to {one.start + one.count - 1}"
    ends = [one.centre + one.reach * end for end in (one.low, one.high)]
    return f"{said}: from {ends[0]:.6g} to {ends[1]:.6g}"


def _helpers(controller: Controller, name: str) -> list[str]:
    """Return the helper functions that layers and entries need."""
    layers = layers_in(controller, "a file of C")
    whole = layers[0].scales is not None
    kind, scales = ("signed char", "const float *scales, ") if whole else ("float", "")
    end = ["    for (int o = 0; o < outputs; o++) into[o] = into[o] * scales[o] + biases[o];"] if whole else []
    found = [
        "\n".join(
            [
                f"static void {name}_dense(const {kind} *restrict weights, {scales}const float *restrict biases,",
                "    int inputs, int outputs, const float *restrict from, float *restrict into)",
                "{",
                f"    for (int o = 0; o < outputs; o++) into[o] = {'0.0f' if whole else 'biases[o]'};",
                "    for (int i = 0; i < inputs; i++) {",
                f"        const {kind} *row = weights + i * outputs;",
                "        const float number = from[i];",
                "        for (int o = 0; o < outputs; o++) into[o] += number * row[o];",
                "    }",
                *end,
                "}",
            ]
        )
    ]
    if any(layer.norm is not None for layer in layers):
        found.append(NORM.replace("NAME", name))
    activation = next((layer.activation for layer in layers if layer.activation != "linear"), None)
    if activation is not None:
        found.append(
            f"static void {name}_activate(float *x_of, int count)\n{{\n    for (int k = 0; k < count; k++) {{\n"
            f"        const float x = x_of[k];\n        x_of[k] = {ACTIVATIONS[activation]};\n    }}\n}}"
        )
    if any(isinstance(one, Choice) for one in controller.actions):
        found.append((MASKED_BEST if controller.masked else BEST).replace("NAME", name))
    if any(isinstance(one, Number) for one in controller.actions):
        found.append(HELD.replace("NAME", name))
    return found


NORM = """static void NAME_norm(float *x, const float *scale, const float *shift, float epsilon, int count)
{
    float mean = 0.0f, spread = 0.0f;
    for (int k = 0; k < count; k++) mean += x[k];
    mean /= (float)count;
    for (int k = 0; k < count; k++) spread += (x[k] - mean) * (x[k] - mean);
    spread = sqrtf(spread / (float)count + epsilon);
    for (int k = 0; k < count; k++) x[k] = (x[k] - mean) / spread * scale[k] + shift[k];
}"""

BEST = """static float NAME_best(const float *worth, int count)
{
    int best = 0;
    for (int k = 1; k < count; k++) if (worth[k] > worth[best]) best = k;
    return (float)best;
}"""

MASKED_BEST = """static float NAME_best(const float *worth, const signed char *mask, int count)
{
    int best = -1;
    for (int k = 0; k < count; k++) {
        if ((!mask || mask[k]) && (best < 0 || worth[k] > worth[best])) best = k;
    }
    return best < 0 ? NAME_best(worth, 0, count) : (float)best;
}"""

HELD = """static float NAME_within(float number, float low, float high, float centre, float reach)
{
    return centre + reach * (number < low ? low : (number > high ? high : number));
}"""


def _network_body(controller: Controller, name: str) -> list[str]:
    layers = layers_in(controller, "a file of C")
    widest = max(controller.num_inputs, *(len(layer.biases) for layer in layers))
    outputs = len(layers[-1].biases)
    constants = [part for place, layer in enumerate(layers) for part in _constants(place, layer)]
    reading, more = _reading(controller)
    steps, source, into = [], "one", "other"
    for place, layer in enumerate(layers):
        rows, columns = layer.weights.shape
        scales = "" if layer.scales is None else f"scales_{place}, "
        steps.append(f"{name}_dense(weights_{place}, {scales}biases_{place}, {columns}, {rows}, {source}, {into});")
        if layer.norm is not None:
            epsilon = real(layer.norm.epsilon)
            steps.append(f"{name}_norm({into}, scale_{place}, shift_{place}, {epsilon}, {rows});")
        if layer.activation != "linear":
            steps.append(f"{name}_activate({into}, {rows});")
        source, into = into, source
    finite = f"{source}[k] >= -{real('inf')} && {source}[k] <= {real('inf')}"
    return [
        *constants,
        *more,
        f"float one[{widest}], other[{widest}];",
        "",
        *reading,
        "",
        *steps,
        f"for (int k = 0; k < {outputs}; k++) if (!({finite})) return 1;",
        *[
            f"action[{place}] = {_entry(one, name, source, controller.masked)};"
            for place, one in enumerate(controller.actions)
        ],
        "return 0;",
    ]


def _constants(place: int, layer: Layer) -> list[str]:
    """Return the arrays of a layer; weights are stored input by input, so that the loop over outputs is vectorized."""
    kind = "float" if layer.scales is None else "signed char"
    found = [array(kind, f"weights_{place}", layer.weights.T.ravel()), array("float", f"biases_{place}", layer.biases)]
    if layer.scales is not None:
        found.append(array("float", f"scales_{place}", layer.scales))
    if layer.norm is not None:
        found += [array("float", f"{what}_{place}", getattr(layer.norm, what)) for what in ("scale", "shift")]
    return found


def _reading(controller: Controller) -> tuple[list[str], list[str]]:
    """Return the statements that write the network's inputs into `one`, and the constants they need."""
    lines, constants, start = [], [], 0
    for place, one in enumerate(controller.inputs):
        if isinstance(one, Code):
            lines += [
                f"for (int k = 0; k < {one.size}; k++) one[{start} + k] = 0.0f;",
                *_whole(one.first, one.start, one.size, f"digit_{place}"),
                f"one[{start} + digit_{place}] = 1.0f;",
            ]
        else:
            number = f"observation[{one.first} + k]"
            lines += [
                f"for (int k = 0; k < {one.size}; k++) {{",
                f"    if (!({number} >= -{real('inf')} && {number} <= {real('inf')})) return 1;",
            ]
            if isinstance(one, Normalised):
                constants += [
                    array("float", f"centre_{place}", one.centre),
                    array("float", f"inverse_scale_{place}", one.inverse_scale),
                ]
                lines.append(f"    const float number = ({number} - centre_{place}[k]) * inverse_scale_{place}[k];")
                clipped = "number"
                if one.limit is not None:
                    limit = real(one.limit)
                    clipped = f"number > {limit} ? {limit} : (number < -{limit} ? -{limit} : number)"
                lines.append(f"    one[{start} + k] = {clipped};")
            else:
                lines.append(f"    one[{start} + k] = {number}{'' if one.factor == 1.0 else f' * {real(one.factor)}'};")
            lines.append("}")
        start += one.size
    return lines, constants


def _whole(first: int, start: int, size: int, name: str) -> list[str]:
    """Return statements that read an integer as an offset from its lowest value."""
    number, low, high = f"observation[{first}]", real(start), real(start + size - 1)
    shift = "" if start == 0 else f" - ({start})"
    return [
        f"if (!({number} >= {low} && {number} <= {high})) return 1;",
        f"const int {name} = (int){number}{shift};",
        f"if ((float)({name} + ({start})) != {number}) return 1;",
    ]


def _entry(one: Choice | Number, name: str, outputs: str, masked: bool) -> str:
    if isinstance(one, Choice):
        mask = f"mask ? mask + {one.column} : mask, " if masked else ""
        best = f"{name}_best({outputs} + {one.column}, {mask}{one.count})"
        return best if one.start == 0 else f"{best} + {real(one.start)}"
    number = f"tanhf({outputs}[{one.column}])" if one.squashed else f"{outputs}[{one.column}]"
    return f"{name}_within({number}, {', '.join(map(real, (one.low, one.high, one.centre, one.reach)))})"


def _table_body(controller: Controller) -> list[str]:
    """Return statements that compute the state's number, its row, and that row's first allowed action."""
    table: Any = controller.policy
    choice: Any = controller.actions[0]
    kept = table.order if controller.masked else table.order[:, :1]
    width = kept.shape[1]
    kind = "unsigned char" if choice.count <= 256 else "unsigned short" if choice.count <= 65536 else "unsigned int"
    lines = [array(kind, "order" if controller.masked else "best", kept.ravel())]
    if table.keys is not None:
        lines.append(array("long long", "states", table.keys))
    lines += ["long long state = 0;", ""]
    for place, (size, start) in enumerate(zip(table.sizes, table.starts, strict=True)):
        lines += _whole(place, start, size, f"digit_{place}")
        lines.append(f"state = state * {size} + digit_{place};")
    if table.keys is None:
        lines.append("const long long row = state;")
    else:
        lines += [
            f"long long row = 0, stop = {len(table.keys)};",
            "while (row < stop) {",
            "    const long long middle = row + (stop - row) / 2;",
            "    if (states[middle] < state) row = middle + 1; else stop = middle;",
            "}",
            f"const int met = row < {len(table.keys)} && states[row] == state; /* if not, all actions are alike */",
        ]
    met = table.keys is None
    plus = "" if choice.start == 0 else f" + {real(choice.start)}"
    if not controller.masked:
        found = "best[row]" if met else "(met ? best[row] : 0)"
        return [*lines, f"action[0] = (float){found}{plus};", "return 0;"]
    ranked = f"order[row * {width} + k]"
    chosen = ranked if met else f"(met ? {ranked} : k)"
    return [
        *lines,
        "int best = -1;",
        f"for (int k = {width - 1}; k >= 0; k--) {{",
        f"    const int chosen = {chosen};",
        "    if (!mask || mask[chosen]) best = chosen;",
        "}",
        "if (best < 0) {  /* nothing is legal, so that the mask counts for nothing */",
        "    const int k = 0;",
        f"    best = {chosen};",
        "}",
        f"action[0] = (float)best{plus};",
        "return 0;",
    ]
