"""Tables of action values: how a state is numbered, where its row lies, and how an action is chosen from it."""
