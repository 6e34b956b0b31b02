"""Exact solutions of finite MDPs: the optimal value of small models, to the last digit."""
