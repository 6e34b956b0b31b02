"""Plants: industrial processes with named constraints, in SI units."""
