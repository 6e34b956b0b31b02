"""Platformer: run and jump through a level that nobody has seen before, from its picture alone.

A level has gaps, pipes and walking enemies, drawn anew for each episode, and ends at a flag. Agents see 84 x 84 gray
pixels. Who falls into a gap or touches an enemy dies; who lands on an enemy is rid of it.
"""
