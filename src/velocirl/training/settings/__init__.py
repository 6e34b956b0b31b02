"""Settings of agents: configurations, their documentation and Stable-Baselines3's names, environment parameters."""
