"""Platformer: run and jump through a level that nobody has seen before, from its picture alone.

A level has gaps, pipes and walking enemies, is made anew for each episode, and ends at a flag. Who falls into a gap or
touches an enemy dies; who lands on one is rid of it. Agents see 84 x 84 gray pixels and have seven actions: nothing,
right, right and jump, right and run, right with both, jump, left. The longer a jump is held, the higher it is.
"""
