"""Units of measurement and their conversion: a unit converts only to units of the same quantity."""

from __future__ import annotations

from math import pi
from typing import NamedTuple

from velocirl.engine.naming import nearest

ATMOSPHERE = 101325.0  # Pa: gauge pressures count from the standard atmosphere
INCH, FOOT = 0.0254, 0.3048  # m
POUND = 0.45359237  # kg
GALLON, IMPERIAL_GALLON = 231.0 * INCH**3, 4.54609e-3  # m3
BARREL = 42.0 * GALLON  # m3
POUND_FORCE, KILOGRAM_FORCE = 4.4482216152605, 9.80665  # N
PSI = POUND_FORCE / INCH**2  # Pa
CALORIE = 4.1868  # J, of the International Table
BTU = 1055.05585262  # J, of the International Table
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0  # s

PREFIXES = {"G": 1e9, "M": 1e6, "k": 1e3, "h": 1e2, "": 1.0, "c": 1e-2, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Unit(NamedTuple):
    """Unit: the measured quantity, with `value * factor + offset` the value in the quantity's base unit."""

    measures: str
    factor: float = 1.0
    offset: float = 0.0


def _scaled(measures: str, base: float, prefixes: str, *names: str) -> dict[str, Unit]:
    """Combine each name with each prefix; a space among the prefixes stands for the bare name."""
    found = {}
    for prefix in prefixes:
        letter = prefix.strip()
        found |= {f"{letter}{name}": Unit(measures, base * PREFIXES[letter]) for name in names}
    return found


def _per(measures: str, amounts: dict[str, float], times: dict[str, float]) -> dict[str, Unit]:
    return {
        f"{name}/{time}": Unit(measures, size / long) for name, size in amounts.items() for time, long in times.items()
    }


TIMES = {"s": 1.0, "min": MINUTE, "h": HOUR, "d": DAY}
VOLUMES = {"m3": 1.0, "l": 1e-3, "L": 1e-3, "ml": 1e-6, "mL": 1e-6, "gal": GALLON, "ft3": FOOT**3, "bbl": BARREL}
MASSES = {"kg": 1.0, "g": 1e-3, "mg": 1e-6, "t": 1e3, "lb": POUND}
LENGTHS = {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "km": 1e3, "um": 1e-6, "in": INCH, "ft": FOOT}
PRESSURES = {
    "Pa": 1.0,
    "hPa": 1e2,
    "kPa": 1e3,
    "MPa": 1e6,
    "mbar": 1e2,
    "bar": 1e5,
    "psi": PSI,
    "atm": ATMOSPHERE,
    "torr": ATMOSPHERE / 760.0,
    "mmHg": 133.322387415,
    "inHg": 3386.388640341,
    "kgf/cm2": KILOGRAM_FORCE * 1e4,
    "mmH2O": KILOGRAM_FORCE,  # at the conventional density of 1000 kg/m3
    "cmH2O": 10.0 * KILOGRAM_FORCE,
    "mH2O": 1e3 * KILOGRAM_FORCE,
    "inH2O": 25.4 * KILOGRAM_FORCE,
}
GAUGES = ("Pa", "kPa", "MPa", "mbar", "bar", "psi")

UNITS = {
    "1": Unit("a share"),
    "%": Unit("a share", 1e-2),
    "ppm": Unit("a share", 1e-6),
    "ppb": Unit("a share", 1e-9),
    "K": Unit("temperature"),
    "degC": Unit("temperature", 1.0, 273.15),
    "°C": Unit("temperature", 1.0, 273.15),
    "degF": Unit("temperature", 5.0 / 9.0, 459.67 * 5.0 / 9.0),
    "°F": Unit("temperature", 5.0 / 9.0, 459.67 * 5.0 / 9.0),
    "degR": Unit("temperature", 5.0 / 9.0),
    **{name: Unit("pressure", size) for name, size in PRESSURES.items()},
    **{f"{name}a": Unit("pressure", PRESSURES[name]) for name in GAUGES if name != "Pa"},
    **{f"{name}g": Unit("pressure", PRESSURES[name], ATMOSPHERE) for name in GAUGES},
    **{name: Unit("length", size) for name, size in LENGTHS.items()},
    **{f"{name}2": Unit("area", size**2) for name, size in LENGTHS.items()},
    **{name: Unit("volume", size) for name, size in VOLUMES.items()},
    **{name: Unit("time", size) for name, size in (TIMES | {"ms": 1e-3}).items()},
    **_per("speed", LENGTHS, TIMES),
    **{name: Unit("mass", size) for name, size in MASSES.items()},
    **_per("mass flow", MASSES, TIMES),
    **_per("flow", VOLUMES, TIMES),
    "gpm": Unit("flow", GALLON / MINUTE),  # US gallons
    "gph": Unit("flow", GALLON / HOUR),
    "gpd": Unit("flow", GALLON / DAY),
    "igpm": Unit("flow", IMPERIAL_GALLON / MINUTE),
    "lpm": Unit("flow", 1e-3 / MINUTE),
    "cfm": Unit("flow", FOOT**3 / MINUTE),
    "bpd": Unit("flow", BARREL / DAY),
    # Gas at reference conditions is an amount of substance; its volume in the pipe is unknown.
    **_per("flow at reference conditions", {"Nm3": 1.0}, TIMES),
    **_per("molar flow", {"mol": 1.0, "kmol": 1e3}, TIMES),
    **_scaled("power", 1.0, "GMk m", "W"),
    "hp": Unit("power", 550.0 * FOOT * POUND_FORCE),
    "kcal/h": Unit("power", 1e3 * CALORIE / HOUR),
    "Btu/h": Unit("power", BTU / HOUR),
    **_scaled("reactive power", 1.0, "GMk ", "var"),
    **_scaled("apparent power", 1.0, "GMk ", "VA"),
    **_scaled("energy", 1.0, "GMk ", "J"),
    **_scaled("energy", HOUR, "GMk ", "Wh"),
    "kcal": Unit("energy", 1e3 * CALORIE),
    "Btu": Unit("energy", BTU),
    **_scaled("voltage", 1.0, "k m", "V"),
    **_scaled("current", 1.0, "k m", "A"),
    **_scaled("frequency", 1.0, "Mk m", "Hz"),
    # Separate from frequencies: at 50 Hz a motor's speed depends on its poles and its slip.
    "rad/s": Unit("rotational speed"),
    "deg/s": Unit("rotational speed", pi / 180.0),
    "rpm": Unit("rotational speed", 2.0 * pi / MINUTE),
    "rps": Unit("rotational speed", 2.0 * pi),
    "rad": Unit("angle"),
    "deg": Unit("angle", pi / 180.0),
    **_scaled("force", 1.0, "k ", "N"),
    "lbf": Unit("force", POUND_FORCE),
    **_scaled("torque", 1.0, "k ", "Nm", "N m"),
    **_per("concentration", {"mol": 1.0, "mmol": 1e-3, "kmol": 1e3}, {"m3": 1.0, "l": 1e-3, "L": 1e-3}),
    **_per("mass concentration", {**MASSES, "ug": 1e-9}, {"m3": 1.0, "l": 1e-3, "L": 1e-3}),
    "lb/ft3": Unit("mass concentration", POUND / FOOT**3),
    **_scaled("viscosity", 1.0, " m", "Pa s"),
    "cP": Unit("viscosity", 1e-3),
    "S/m": Unit("conductivity"),
    "mS/cm": Unit("conductivity", 0.1),
    "uS/cm": Unit("conductivity", 1e-4),
    "W/m2": Unit("heat flux"),
    "kW/m2": Unit("heat flux", 1e3),
}  # fmt: skip

# Alternative spellings, found in exports of historians.
SPELLINGS = {
    "bar(g)": "barg", "bar g": "barg", "barG": "barg", "bar(a)": "bara", "bar a": "bara", "psi(g)": "psig",
    "kPa(g)": "kPag", "psi(a)": "psia", "deg C": "degC", "deg F": "degF", "r/min": "rpm", "rev/min": "rpm",
    "1/min": "rpm", "RPM": "rpm", "GPM": "gpm", "USgpm": "gpm", "PPM": "ppm", "ppmv": "ppm", "sec": "s", "hr": "h",
    "N.m": "Nm", "ft3/min": "cfm", "CFM": "cfm", "Torr": "torr", "BAR": "bar", "PSI": "psi",
    "PSIG": "psig", "PSIA": "psia",
}  # fmt: skip
LETTERS = str.maketrans({"³": "3", "²": "2", "µ": "u", "μ": "u", "º": "°", "·": " ", "\u00a0": " "})


def unit_of(written: str) -> Unit | None:
    """Return the unit for a written name, such as "m³/h" or "bar(g)"; None if unknown."""
    plain = written.strip().translate(LETTERS)
    return UNITS.get(SPELLINGS.get(plain, plain))


def conversion(given: str, wanted: str, place: str) -> tuple[float, float]:
    """Return the factor and the offset of a conversion; raise for units of different quantities."""
    if given == wanted:
        return 1.0, 0.0
    one, other = (_known(unit, given, wanted, place) for unit in (given, wanted))
    if one.measures != other.measures:
        raise ValueError(
            f"{place} is in {given}, which is {one.measures}, and wanted in {wanted}, which is {other.measures}: map"
            " another column, or correct its unit"
        )
    return one.factor / other.factor, (one.offset - other.offset) / other.factor


def units_like(unit: str) -> list[str]:
    """Return the units that convert to this one, without synonyms of equal size."""
    found, alike = unit_of(unit), {}
    for name, one in UNITS.items():
        if found is not None and one.measures == found.measures:
            alike.setdefault(one, name)
    return list(alike.values())


def _known(unit: str, given: str, wanted: str, place: str) -> Unit:
    found = unit_of(unit)
    if found is None:
        raise ValueError(
            f"{place} is in {given or 'no unit'} and wanted in {wanted or 'no unit'}, and {unit or 'no unit'!r} cannot"
            f" be converted{nearest(unit, UNITS)}"
        )
    return found
