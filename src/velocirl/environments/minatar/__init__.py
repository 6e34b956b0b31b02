"""MinAtar: five games of the Atari 2600, reduced to what makes them hard, on a screen of 10 x 10 cells.

Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning Experiments",
2019. Step for step, the games are those of its package, version 1.0.15: an observation has a plane for each kind of
thing, with ones where it is; actions are those that do something in the game ("v1" there); the last action of the
episode may be repeated instead (`sticky`); and games become faster (`ramping`).
"""
