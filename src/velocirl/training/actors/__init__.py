"""Acting outside of training: native and torch actors for single observations and batches, and video recording."""
