"""Vector environments of Stable-Baselines3's protocol, for tests where that library is not installed."""

import numpy as np


class VecEnv:
    """Environments that step one after the other, and begin anew in the step that ends an episode."""

    def __init__(self, env_fns):
        self.envs = [make() for make in env_fns]
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self._seeds = [None] * self.num_envs

    def seed(self, seed=None):
        self._seeds = [seed + place for place in range(self.num_envs)]

    def reset(self):
        seen = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self._seeds, strict=True)]
        self._seeds = [None] * self.num_envs
        return np.stack(seen)

    def step_async(self, actions):
        self._actions = actions

    def step_wait(self):
        seen, rewards, dones, infos = [], [], [], []
        for env, action in zip(self.envs, self._actions, strict=True):
            observation, reward, terminated, truncated, info = env.step(action)
            info = {**info, "TimeLimit.truncated": truncated and not terminated}
            if terminated or truncated:
                info["terminal_observation"] = observation
                observation, _ = env.reset()
            seen.append(observation)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        return np.stack(seen), np.array(rewards, np.float32), np.array(dones), infos

    def has_attr(self, name):
        return all(env.has_wrapper_attr(name) for env in self.envs)

    def get_attr(self, name, indices=None):
        return [env.get_wrapper_attr(name) for env in self.envs]

    def env_method(self, name, *args, **kwargs):
        return [env.get_wrapper_attr(name)(*args, **kwargs) for env in self.envs]


class DummyVecEnv(VecEnv):
    """The one whose environments can be reached."""


class RunningMeanStd:
    """What has been seen of numbers."""

    def __init__(self, shape=()):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4


class VecEnvWrapper:
    """Something around a vector environment that does as that one does."""

    def __init__(self, venv):
        self.venv = venv

    def __getattr__(self, name):
        return getattr(self.venv, name)

    step_async, step_wait, reset = (property(lambda self, name=name: getattr(self.venv, name))
                                    for name in ("step_async", "step_wait", "reset"))  # fmt: skip


class VecMonitor(VecEnvWrapper):
    """The one that counts returns."""

    results_writer = None


class VecNormalize(VecEnvWrapper):
    """The one that normalizes, as far as its settings and statistics go."""

    def __init__(
        self, venv, training=True, norm_obs=True, norm_reward=True, clip_obs=10.0, clip_reward=10.0, gamma=0.99
    ):
        super().__init__(venv)
        self.training, self.norm_obs, self.norm_reward, self.gamma = training, norm_obs, norm_reward, gamma
        self.clip_obs, self.clip_reward = clip_obs, clip_reward
        if norm_obs:
            self.obs_rms = RunningMeanStd(venv.observation_space.shape)
        self.ret_rms = RunningMeanStd()
