"""Many copies of an environment: their arrays, one copy's life, and the loops over all of them."""
