"""Network of PowerGrid: its lines, the matrices derived from them, and the power flow.

Buses 1 to 3 have a unit each, buses 4 to 6 a town. Flows follow from injections by distribution factors (Wood and
Wollenberg, "Power Generation, Operation and Control"). The towns' voltages follow from the units' voltages and from
reactive power by the matrix B'' of the decoupled power flow (Stott and Alsac, "Fast decoupled load flow", 1974).
"""

import numpy as np
from numpy.typing import NDArray

BASE = 100.0  # MVA, base of per-unit values
BUSES, UNITS, TOWNS = 6, 3, 3

# From bus, to bus, resistance and reactance per unit, rating in MW.
LINES = (
    (1, 4, 0.020, 0.10, 150.0),
    (1, 5, 0.030, 0.15, 120.0),
    (2, 4, 0.020, 0.10, 130.0),
    (2, 6, 0.020, 0.10, 130.0),
    (3, 5, 0.020, 0.12, 130.0),
    (3, 6, 0.020, 0.12, 110.0),
    (4, 5, 0.040, 0.25, 30.0),
    (5, 6, 0.040, 0.25, 30.0),
)
FROM = np.array([line[0] - 1 for line in LINES])
TO = np.array([line[1] - 1 for line in LINES])
INERTIA_SHARE = np.array([0.4, 0.3, 0.3], np.float32)  # of steam, gas and hydro
RESISTANCE, REACTANCE, RATING = (np.array([line[k] for line in LINES], np.float32) for k in (2, 3, 4))


def incidence() -> NDArray[np.float64]:
    """Return the incidence matrix: line leaves (1) or enters (-1) bus, (lines, buses)."""
    matrix = np.zeros((len(LINES), BUSES))
    matrix[np.arange(len(LINES)), FROM] = 1.0
    matrix[np.arange(len(LINES)), TO] = -1.0
    return matrix


_branches = np.diag(1.0 / REACTANCE) @ incidence()
_susceptance = incidence().T @ _branches
_towns = np.linalg.inv(_susceptance[UNITS:, UNITS:])

FLOW_BY_POWER = (_branches @ np.linalg.pinv(_susceptance)).astype(np.float32)  # (lines, buses)
# Columns: the units' voltages, then the reactive power injected at the towns; (towns, units and towns).
VOLTAGE_BY_SOURCE = np.concatenate([-_towns @ _susceptance[UNITS:, :UNITS], _towns], axis=1).astype(np.float32)
REACTIVE_BY_VOLTAGE = _susceptance[:UNITS].astype(np.float32)  # (units, buses), per unit
# Reactive power drawn at each end of a line, per unit, by its squared flow in MW; (buses, lines).
DRAWN_BY_FLOW = (0.5 * np.abs(incidence().T) * REACTANCE / BASE**2).astype(np.float32)


def transmit(state, params):
    """Update flows, voltages, reactive power and losses from the injections and loads.

    Small flows are differences of large powers, and reactive power follows from differences of nearly equal voltages.
    Both are therefore summed in double precision.
    """
    steam, gas, hydro = np.float64(state.power[0]), np.float64(state.power[1]), np.float64(state.power[2])
    load_4, load_5, load_6 = np.float64(state.load[0]), np.float64(state.load[1]), np.float64(state.load[2])
    surplus = steam + gas + hydro + state.battery + state.wind - load_4 - load_5 - load_6
    injected = (
        steam - INERTIA_SHARE[0] * surplus,
        gas - INERTIA_SHARE[1] * surplus,
        hydro - INERTIA_SHARE[2] * surplus,
        -load_4,
        state.wind - load_5,
        state.battery - load_6,
    )
    for line in range(8):
        state.flow[line] = by_six(FLOW_BY_POWER, line, injected)

    flow = state.flow
    first, second = flow[0] * flow[0], flow[1] * flow[1]
    third, fourth = flow[2] * flow[2], flow[3] * flow[3]
    fifth, sixth = flow[4] * flow[4], flow[5] * flow[5]
    squares = (first, second, third, fourth, fifth, sixth, flow[6] * flow[6], flow[7] * flow[7])
    at_units = np.float64(state.voltage[0]), np.float64(state.voltage[1]), np.float64(state.voltage[2])
    sources = (
        *at_units,
        -params.power_factor * state.load[0] / BASE - by_eight(DRAWN_BY_FLOW, 3, squares),
        (state.compensator - params.power_factor * state.load[1]) / BASE - by_eight(DRAWN_BY_FLOW, 4, squares),
        -params.power_factor * state.load[2] / BASE - by_eight(DRAWN_BY_FLOW, 5, squares),
    )
    at_towns = (
        by_six(VOLTAGE_BY_SOURCE, 0, sources),
        by_six(VOLTAGE_BY_SOURCE, 1, sources),
        by_six(VOLTAGE_BY_SOURCE, 2, sources),
    )
    state.voltage[3], state.voltage[4], state.voltage[5] = at_towns
    for unit in range(UNITS):
        given = by_six(REACTIVE_BY_VOLTAGE, unit, at_units + at_towns) + by_eight(DRAWN_BY_FLOW, unit, squares)
        state.reactive[unit] = BASE * given

    state.losses = 0.0
    for line in range(8):
        current = flow[line] / state.voltage[FROM[line]]
        state.losses += RESISTANCE[line] * current * current / BASE


# Products with a row of a matrix, written out: a nested loop would prevent vectorization of fleets.


def by_six(matrix, k, of):
    first = matrix[k, 0] * of[0] + matrix[k, 1] * of[1] + matrix[k, 2] * of[2]
    return first + matrix[k, 3] * of[3] + matrix[k, 4] * of[4] + matrix[k, 5] * of[5]


def by_eight(matrix, k, of):
    return by_six(matrix, k, of) + matrix[k, 6] * of[6] + matrix[k, 7] * of[7]


def loading(state, params):
    """Return the highest ratio of a line's flow to its rating."""
    most = 0.0
    for line in range(8):
        most = max(most, abs(state.flow[line]) / RATING[line])
    return most


def lowest_voltage(state, params):
    lowest = state.voltage[0]
    for bus in range(1, BUSES):
        lowest = min(lowest, state.voltage[bus])
    return lowest


def highest_voltage(state, params):
    highest = state.voltage[0]
    for bus in range(1, BUSES):
        highest = max(highest, state.voltage[bus])
    return highest
