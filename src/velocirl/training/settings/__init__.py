"""The settings of agents: configurations, their words and documentation, the parameters of environments."""
