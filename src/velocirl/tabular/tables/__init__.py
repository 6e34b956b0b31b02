"""Tables of action values: numbering of states, layout of rows, and choice of actions."""
