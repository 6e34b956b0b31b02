"""A network of your own: any torch module that gives logits and a value; environment, loss and settings stay."""

import tempfile
from pathlib import Path

import torch

import velocirl


class Policy(torch.nn.Module):
    """Two views of the observation, of which a gate chooses."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.views = torch.nn.ModuleList(torch.nn.Linear(observations, 32) for _ in range(2))
        self.gate = torch.nn.Linear(observations, 32)
        self.logits, self.value = torch.nn.Linear(32, actions), torch.nn.Linear(32, 1)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the actions and the value, for a batch of observations."""
        gate = torch.sigmoid(self.gate(observation))
        features = gate * torch.tanh(self.views[0](observation)) + (1 - gate) * torch.relu(self.views[1](observation))
        return self.logits(features), self.value(features)


if __name__ == "__main__":
    agent = velocirl.PPO("CartPole-v1", network=Policy(4, 2), num_envs=64, seed=0)
    agent.learn(150_000, callbacks=velocirl.StopOnReward(475))
    print(velocirl.evaluate(agent, episodes=50, seed=1))
    with tempfile.TemporaryDirectory() as directory:
        path = agent.save(Path(directory) / "gated")
        again = velocirl.PPO.load(path, network=Policy(4, 2))  # no file holds code: the module is given again
    print("loaded:", velocirl.evaluate(again, episodes=50, seed=1))
