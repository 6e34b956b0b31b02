"""PID as one C99 file without any library, written by `velocirl.export`.

Loops are written one after the other, outer loops of a cascade first, in double precision as in `PID`. Their state
between calls is a struct owned by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isinf
from typing import Any

import numpy as np

from velocirl.controllers.layout import Layout
from velocirl.controllers.loops import Loop
from velocirl.controllers.pid import PID
from velocirl.deployment.c_words import comment, identifier
from velocirl.version import __version__

RESPOND = """static double NAME_within(double number, double low, double high)
{
    return number < low ? low : (number > high ? high : number);
}

static double NAME_respond(double *integral, double *filtered, int first, double setpoint, double signal, double gain,
                           double per_integral, double derivative_time, double share, double bias, double low,
                           double high)
{
    const double error = setpoint - signal;
    const double before = first ? 0.0 : *integral, seen = first ? signal : *filtered;
    const double now = seen + share * (signal - seen);
    const double prompt = bias + gain * (error - derivative_time * ((now - seen) / NAME_TIME_STEP));
    const double grown = before + error * NAME_TIME_STEP;
    const double wanted = prompt + gain * grown * per_integral, push = gain * error;
    const int winds_up = (wanted > high && push > 0.0) || (wanted < low && push < 0.0);
    *integral = winds_up ? before : grown;
    *filtered = now;
    return NAME_within(prompt + gain * *integral * per_integral, low, high);
}"""

TABLE = """static double NAME_lookup(const double table[][2], int rows, double x)
{
    int k = 1;
    if (x <= table[0][0]) return table[0][1];
    if (x >= table[rows - 1][0]) return table[rows - 1][1];
    while (table[k][0] < x) k++;
    return table[k - 1][1]
        + (x - table[k - 1][0]) / (table[k][0] - table[k - 1][0]) * (table[k][1] - table[k - 1][1]);
}"""


def pid_text(pid: PID, name: str | None = None) -> str:
    """Return the C file of a PID that is bound to its environment."""
    layout = pid.layout
    name = identifier(layout.id if name is None else name)
    width, count = (layout.observation.shape or (0,))[0], (layout.action.shape or (0,))[0]
    prototype = f"int {name}_predict(const float *observation, {name}_state *state, float *action)"
    stages = pid.stages
    scheduled = any(stage.schedule is not None for stage in stages)
    upper = name.upper()
    parts = [
        _opening(pid, name, prototype),
        f"#define {upper}_OBSERVATIONS {width}\n#define {upper}_ACTIONS {count}\n"
        f"#define {upper}_TIME_STEP {_real(pid.time_step)} /* s between two calls */",
        f"typedef struct {{\n    int begun; /* 0 before the first call of an episode */\n"
        f"    double integral[{len(stages)}], filtered[{len(stages)}];\n}} {name}_state;",
        f"{prototype};",
        RESPOND.replace("NAME_TIME_STEP", f"{upper}_TIME_STEP").replace("NAME", name),
        *([TABLE.replace("NAME", name)] if scheduled else []),
        "\n".join([prototype, "{", *(f"    {line}" for line in _body(pid, name)), "}"]),
    ]
    return "\n\n".join(parts) + "\n"


def _opening(pid: PID, name: str, prototype: str) -> str:
    layout = pid.layout
    lines = [
        comment(f"A PID controller of {layout.id}, one action each {pid.time_step:g} s."),
        comment(f"Written by velocirl {__version__}."),
        "",
        f"    {name}_state state = {{0}};",
        f"    {prototype};",
        "",
        "`observation` has these numbers:",
        *_listed(layout.signals, layout.observation.shape),
        "`action` gets these, within the bounds of the plant:",
        *_listed(layout.actuators, layout.action.shape),
        "",
        "`state` keeps the integrals: set it to zero before an episode, and keep it between calls. Returns 0, or 1",
        "where a number that is read is not finite: `action` and `state` are then left as they were.",
        "C99 without any library; no memory is allocated. -ffast-math would take the test for finite numbers away.",
    ]
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in lines), " */"])


def _listed(names: Sequence[str], shape: Any) -> list[str]:
    known = names or [f"number {k}" for k in range(shape[0])]
    return [f"    {place}  {comment(one)}" for place, one in enumerate(known)]


def _body(pid: PID, name: str) -> list[str]:
    """Return the statements of the function: check inputs, compute loop by loop, write the action."""
    layout, terms = pid.layout, pid.terms
    lines = [
        f"if (!(observation[{place}] >= -3.4e38f && observation[{place}] <= 3.4e38f)) return 1;"
        for place in sorted(_read(pid.stages, layout))
    ]
    lines += ["const int first = !state->begun;", "state->begun = 1;"]
    for k, stage in enumerate(pid.stages):
        gain, bias = _real(terms.gain[k]), _real(terms.bias[k])
        for signal, factor in stage.feed_forward.items():
            bias += f" + {_real(factor)} * (double)observation[{layout.signal(signal)}]"
        if stage.schedule is not None:
            rows = ", ".join(f"{{{_real(value)}, {_real(factor)}}}" for value, factor in stage.schedule[1])
            lines.append(f"static const double schedule_{k}[][2] = {{{rows}}};")
            place = layout.signal(stage.schedule[0])
            gain += f" * {name}_lookup(schedule_{k}, {len(stage.schedule[1])}, (double)observation[{place}])"
        per_integral = 0.0 if isinf(terms.integral_time[k]) else 1.0 / terms.integral_time[k]
        share = pid.time_step / (pid.time_step + terms.filter_time[k])
        numbers = [per_integral, terms.derivative_time[k], share]
        lines += [
            f"const double output_{k} = {name}_respond(",
            f"    &state->integral[{k}], &state->filtered[{k}], first, {_setpoint(k, stage, layout)},",
            f"    (double)observation[{layout.signal(stage.signal)}], {gain},",
            f"    {', '.join(map(_real, numbers))},",
            f"    {bias}, {_real(terms.low[k])}, {_real(terms.high[k])});",
        ]
    moved = {layout.actuator(one.actuator): k for k, one in enumerate(pid.stages) if one.actuator is not None}
    resting = {layout.actuator(actuator): float(value) for actuator, value in pid.bias.items()}
    low, high = layout.bounds
    for place in range(len(low)):
        value = f"output_{moved[place]}" if place in moved else _real(resting[place])
        lines.append(f"action[{place}] = (float){name}_within({value}, {_real(low[place])}, {_real(high[place])});")
    return [*lines, "return 0;"]


def _read(stages: Sequence[Loop], layout: Layout) -> set[int]:
    """Return the indices of all signals that any loop reads."""
    names: list[str | int] = []
    for stage in stages:
        names += [stage.signal, *stage.feed_forward]
        names += [stage.setpoint] if isinstance(stage.setpoint, str) else []
        names += [] if stage.schedule is None else [stage.schedule[0]]
    return {layout.signal(one) for one in names}


def _setpoint(k: int, stage: Loop, layout: Layout) -> str:
    if isinstance(stage.setpoint, Loop):
        return f"output_{k - 1}"
    if isinstance(stage.setpoint, str):
        return f"(double)observation[{layout.signal(stage.setpoint)}]"
    return _real(stage.setpoint)


def _real(value: Any) -> str:
    """Return an exact literal in double precision; an infinite number becomes the largest one."""
    number = float(value)
    if not isfinite(number):
        number = float(np.copysign(np.finfo(np.float64).max, number))
    text = repr(number)
    return text if "." in text or "e" in text else f"{text}.0"
