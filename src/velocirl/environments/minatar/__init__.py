"""MinAtar: five games of the Atari 2600, reduced to their essential difficulties, on a screen of 10 x 10 cells.

Young and Tian, "MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement Learning Experiments",
2019. Step for step, the games match the package's version 1.0.15. An observation has one plane for each kind of object,
with ones at its positions. Actions are those that have an effect in the game ("v1" in the package). The last action of
the episode is repeated with probability `sticky`. With `ramping`, games become faster.
"""
