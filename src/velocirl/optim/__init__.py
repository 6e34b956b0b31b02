"""Optimizers, clipping and schedules over one flat parameter vector."""
