"""Programs: iterations and updates as data, and the scalar functions that they are made of."""
