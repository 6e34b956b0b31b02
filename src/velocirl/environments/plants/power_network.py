"""The network of PowerGrid: its lines, and the matrices that follow from them.

Buses 1 to 3 have a unit each, buses 4 to 6 a town. Flows follow from injections by distribution factors (Wood and
Wollenberg, "Power Generation, Operation and Control"), voltages of the towns from those of the units and from reactive
power by the matrix B'' of the decoupled power flow (Stott and Alsac, "Fast decoupled load flow", 1974).
"""

import numpy as np
from numpy.typing import NDArray

BASE = 100.0  # MVA, of values per unit
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
RESISTANCE, REACTANCE, RATING = (np.array([line[k] for line in LINES], np.float32) for k in (2, 3, 4))


def incidence() -> NDArray[np.float64]:
    """Which line leaves (1) and enters (-1) which bus, (lines, buses)."""
    matrix = np.zeros((len(LINES), BUSES))
    matrix[np.arange(len(LINES)), FROM] = 1.0
    matrix[np.arange(len(LINES)), TO] = -1.0
    return matrix


_branches = np.diag(1.0 / REACTANCE) @ incidence()
_susceptance = incidence().T @ _branches
_towns = np.linalg.inv(_susceptance[UNITS:, UNITS:])

FLOW_BY_POWER = (_branches @ np.linalg.pinv(_susceptance)).astype(np.float32)  # (lines, buses)
# Of the voltages of the units and of the reactive power that is given at the towns, (towns, units and towns).
VOLTAGE_BY_SOURCE = np.concatenate([-_towns @ _susceptance[UNITS:, :UNITS], _towns], axis=1).astype(np.float32)
REACTIVE_BY_VOLTAGE = _susceptance[:UNITS].astype(np.float32)  # (units, buses), per unit
# What a line draws at each of its ends, per unit of reactive power by the square of its flow in MW, (buses, lines).
DRAWN_BY_FLOW = (0.5 * np.abs(incidence().T) * REACTANCE / BASE**2).astype(np.float32)
