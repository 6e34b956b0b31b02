"""Platformer: run and jump through an unseen level, from images alone.

A level has gaps, pipes and walking enemies, is generated for each episode, and ends at a flag. Falling into a gap or
touching an enemy is fatal; landing on an enemy removes it. Agents observe 84 x 84 gray pixels and have seven actions:
nothing, right, right and jump, right and run, right with both, jump, left. The longer a jump is held, the higher it is.
"""
