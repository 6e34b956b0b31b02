"""A script for Stable-Baselines3, whose VecNormalize it keeps. `# In SB3:` stands above each line that changed."""

import sys
import tempfile
from pathlib import Path

import gymnasium
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

# In SB3: from stable_baselines3 import PPO
# In SB3: from stable_baselines3.common.callbacks import EvalCallback
# In SB3: from stable_baselines3.common.evaluation import evaluate_policy
from velocirl import PPO, Evaluate, evaluate_policy


class Centered(gymnasium.Wrapper):
    """Rewards a cart for staying in the middle."""

    def step(self, action):
        """Take a step, whose reward is 1 in the middle of the track and 0 at its ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) - abs(float(observation[0])) / 2.4, terminated, truncated, info


def make():
    """One environment."""
    return Centered(gymnasium.make("CartPole-v1"))


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
folder = Path(tempfile.mkdtemp())
env = VecNormalize(DummyVecEnv([make] * 8), gamma=0.98)
eval_env = VecNormalize(DummyVecEnv([make]), training=False, norm_reward=False)
policy_kwargs = {"net_arch": {"pi": [64, 64], "vf": [128, 64]}, "activation_fn": nn.Tanh}
model = PPO(
    "MlpPolicy", env, n_steps=128, batch_size=256, n_epochs=10, learning_rate=lambda remaining: 1e-3 * remaining,
    gamma=0.98, ent_coef=0.0, clip_range=0.2, policy_kwargs=policy_kwargs, seed=0, device="cpu", verbose=0,
)  # fmt: skip
# In SB3: evaluation = EvalCallback(eval_env, eval_freq=1000, n_eval_episodes=5, best_model_save_path=folder, verbose=0)
evaluation = Evaluate(env=eval_env, every=8_000, episodes=5, directory=folder)  # every: steps of all 8 environments
model.learn(total_timesteps=steps, callback=evaluation)
model.save(folder / "last")

# In SB3: for name in ("best_model", "last"):
for name in ("best", "last"):
    model = PPO.load(folder / name, env=env, device="cpu")
    mean, deviation = evaluate_policy(model, eval_env, n_eval_episodes=20)
    print(f"{name}: {mean:.1f} +- {deviation:.1f}")

episode = make()
observation, _ = episode.reset(seed=1)
ended = False
while not ended:
    # In SB3: action, _ = model.predict(eval_env.normalize_obs(observation), deterministic=True)
    action, _ = model.predict(observation, deterministic=True)  # the statistics belong to the model
    observation, reward, terminated, truncated, _ = episode.step(int(action))
    ended = terminated or truncated
print(f"after {model.num_timesteps} steps the last pole leans by {observation[2]:.2f} rad")
