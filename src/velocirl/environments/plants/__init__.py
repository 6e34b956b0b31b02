"""Plants: processes of industry with named constraints that must hold, in SI units."""
