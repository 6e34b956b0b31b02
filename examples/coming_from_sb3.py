"""The first hour of somebody who comes from Stable-Baselines3: the same verbs, words and environments."""

import tempfile
from pathlib import Path

import gymnasium

import velocirl
from velocirl import PPO, evaluate

# Your environment as you have it, wrappers included: an object, a function that makes one, a list, a VectorEnv.
env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 0.1 * reward)

# Words of Stable-Baselines3 are understood; print(model) says what they are called here.
model = PPO("MlpPolicy", env, n_envs=8, n_steps=128, ent_coef=0.0, seed=0)
model.learn(total_timesteps=40_000, progress_bar=True)
print(model)

with tempfile.TemporaryDirectory() as directory:
    path = model.save(Path(directory) / "cartpole")  # one safetensors file; loading it executes nothing
    model = PPO.load(path, env=env)

observation, _ = env.reset(seed=1)
ended = False
while not ended:
    action, _ = model.predict(observation, deterministic=True)
    observation, _, terminated, truncated, _ = env.step(action)
    ended = terminated or truncated
print("in Gymnasium's own environment:", evaluate(model, "gym:CartPole-v1", episodes=10, seed=1))

# The same environment as plain scalar functions, compiled: a hundred times the steps in the same time.
fast = PPO("CartPole-v1", seed=0).learn(200_000)
print("compiled:", evaluate(fast, episodes=100, seed=1))
print("what there is to train in:", ", ".join(velocirl.list_envs()))
