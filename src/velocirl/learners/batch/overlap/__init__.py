"""Steps that are taken while updates run: by a thread, or on a GPU as a stream of their own."""
