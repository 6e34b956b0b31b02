"""Units of measurement, and how numbers in one become numbers in another."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """What a unit measures, and `value * factor + offset`: the value in the basic unit of that."""

    measures: str
    factor: float = 1.0
    offset: float = 0.0


UNITS = {
    "1": Unit("a share"),
    "%": Unit("a share", 0.01),
    "K": Unit("temperature"),
    "degC": Unit("temperature", 1.0, 273.15),
    "°C": Unit("temperature", 1.0, 273.15),
    "degF": Unit("temperature", 5.0 / 9.0, 459.67 * 5.0 / 9.0),
    "Pa": Unit("pressure"),
    "hPa": Unit("pressure", 1e2),
    "mbar": Unit("pressure", 1e2),
    "kPa": Unit("pressure", 1e3),
    "bar": Unit("pressure", 1e5),
    "MPa": Unit("pressure", 1e6),
    "psi": Unit("pressure", 6894.757293168361),
    "m": Unit("length"),
    "cm": Unit("length", 1e-2),
    "mm": Unit("length", 1e-3),
    "s": Unit("time"),
    "ms": Unit("time", 1e-3),
    "min": Unit("time", 60.0),
    "h": Unit("time", 3600.0),
    "m/s": Unit("speed"),
    "km/h": Unit("speed", 1.0 / 3.6),
    "kg": Unit("mass"),
    "g": Unit("mass", 1e-3),
    "t": Unit("mass", 1e3),
    "kg/s": Unit("mass flow"),
    "kg/min": Unit("mass flow", 1.0 / 60.0),
    "kg/h": Unit("mass flow", 1.0 / 3600.0),
    "t/h": Unit("mass flow", 1.0 / 3.6),
    "m3/s": Unit("flow"),
    "m3/h": Unit("flow", 1.0 / 3600.0),
    "l/s": Unit("flow", 1e-3),
    "l/min": Unit("flow", 1e-3 / 60.0),
    "l/h": Unit("flow", 1e-3 / 3600.0),
    "W": Unit("power"),
    "kW": Unit("power", 1e3),
    "MW": Unit("power", 1e6),
    "mol/m3": Unit("concentration"),
    "mol/l": Unit("concentration", 1e3),
    "g/m3": Unit("mass concentration"),
    "mg/l": Unit("mass concentration"),
    "g/l": Unit("mass concentration", 1e3),
    "rad": Unit("angle"),
    "deg": Unit("angle", 0.017453292519943295),
}


def conversion(given: str, wanted: str, place: str) -> tuple[float, float]:
    """The factor and offset that make numbers in one unit numbers in another; refused where they are not alike."""
    if given == wanted:
        return 1.0, 0.0
    for unit in (given, wanted):
        if unit not in UNITS:
            raise ValueError(
                f"{place} is in {given or 'no unit'} and wanted in {wanted or 'no unit'}, and {unit or 'no unit'!r} is"
                f" none that can be converted: those are {', '.join(UNITS)}"
            )
    one, other = UNITS[given], UNITS[wanted]
    if one.measures != other.measures:
        raise ValueError(
            f"{place} is in {given}, which is {one.measures}, and wanted in {wanted}, which is {other.measures}: map"
            " another column, or correct its unit"
        )
    return one.factor / other.factor, (one.offset - other.offset) / other.factor
