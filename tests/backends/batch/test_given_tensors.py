"""Vector environments that show tensors of the learner's device, against the same with arrays of the host."""

import gymnasium
import numpy as np
import pytest
import torch
from choosing import slow_but
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl import DQN, PPO, SAC

COPIES, LIMIT = 6, 9
SMALL = {"hidden": (8, 8), "network": "mlp(8)", "seed": 1, "threads": 1, "learning_rate": 0.01}
REPLAY = {**SMALL, "learning_starts": 12, "batch_size": 8, "buffer_size": 600}
ROLLOUT = {**SMALL, "horizon": 16, "minibatch_size": 16, "normalise_observations": True}


class Walks(VectorEnv):
    """Walks with a drift that actions choose, as tensors of a device; they end at an edge or are cut off."""

    render_mode, num_envs = None, COPIES

    def __init__(self, mode=AutoresetMode.SAME_STEP, device="cpu", continuous=False, objects=False):
        self.metadata = {"autoreset_mode": mode}
        self.mode, self.device, self.objects = mode, torch.device(device), objects
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (1,)) if continuous else spaces.Discrete(3)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, COPIES)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, COPIES)
        self.place, self.steps = torch.zeros(COPIES), torch.zeros(COPIES)
        self.over = torch.zeros(COPIES, dtype=torch.bool)
        self.given, self.lean = [], 0.0 if continuous else 1.0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.generator = torch.Generator().manual_seed(seed)
        chosen = torch.as_tensor((options or {}).get("reset_mask", np.ones(COPIES, np.bool_)))
        self._begin(chosen)
        return self.seen(), {}

    def step(self, actions):
        assert isinstance(actions, torch.Tensor) != isinstance(self, HostWalks)
        self.given.append(actions)
        begins = self.over.clone() if self.mode == AutoresetMode.NEXT_STEP else torch.zeros_like(self.over)
        push = torch.as_tensor(actions, dtype=torch.float32).reshape(COPIES).cpu()
        self.place = self.place + push - self.lean + torch.randn(COPIES, generator=self.generator) / 2
        self.steps = self.steps + 1
        self._begin(begins)
        reward = torch.where(begins, 0.0, 1.0 - self.place.abs())
        terminated = (self.place.abs() > 4) & ~begins
        truncated = (self.steps >= LIMIT) & ~terminated & ~begins
        self.over = terminated | truncated
        seen, infos = self.seen(), {}
        if self.mode == AutoresetMode.SAME_STEP and self.over.any():
            infos["final_obs"] = np.array([*seen, None], object)[:-1] if self.objects else seen
            self._begin(self.over)
        return self.seen(), *(self.shown(one) for one in (reward, terminated, truncated)), infos

    def _begin(self, chosen):
        fresh = torch.rand(COPIES, generator=self.generator) if chosen.any() else self.place
        self.place, self.steps = torch.where(chosen, fresh, self.place), torch.where(chosen, 0, self.steps)
        self.over = self.over & ~chosen

    def seen(self):
        return self.shown(torch.stack([self.place, self.steps / LIMIT], 1))

    def shown(self, tensor):
        return tensor.to(self.device)


class HostWalks(Walks):
    """The same as arrays."""

    def shown(self, tensor):
        return tensor.numpy().copy()


CASES = {
    "PPO": (lambda env, **more: PPO(env, **ROLLOUT, **more), False),
    "PPO of numbers": (lambda env, **more: PPO(env, **ROLLOUT, **more), True),
    "DQN": (lambda env, **more: DQN(env, **REPLAY, **more), False),
    "SAC": (lambda env, **more: SAC(env, **REPLAY, **more), True),
}


@pytest.mark.parametrize("name", slow_but({"PPO", "DQN", "SAC"}, CASES))
def test_tensors_are_learnt_from_as_arrays_are(name):
    make, continuous = CASES[name]
    host, own = (make(kind(continuous=continuous)).learn(400) for kind in (HostWalks, Walks))
    assert own.learner.device.steps_itself(own.source)
    np.testing.assert_array_equal(own.parameters, host.parameters)
    assert list(own.recent.lengths) == list(host.recent.lengths) != []
    np.testing.assert_allclose(list(own.recent.returns), list(host.recent.returns), rtol=1e-5)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("objects", [False, True])
def test_every_mode(mode, objects):
    host, own = (PPO(kind(mode, objects=objects), **ROLLOUT).learn(200) for kind in (HostWalks, Walks))
    np.testing.assert_array_equal(own.parameters, host.parameters)


def test_costs_are_told_where_infos_have_them():
    """Half of what an episode has steps."""

    class Paid(Walks):
        def step(self, actions):
            *told, infos = super().step(actions)
            return *told, {**infos, "cost": torch.full((COPIES,), 0.5)}

    paid, free = (PPO(kind(), **ROLLOUT).learn(200) for kind in (Paid, Walks))
    assert paid.metrics["episode/cost"] == pytest.approx(0.5 * paid.metrics["rollout/ep_len_mean"])
    assert paid.metrics["rollout/violations"] == paid.steps
    assert not [name for name in free.metrics if "cost" in name or "violations" in name]


def test_an_environment_may_keep_its_actions():
    envs = Walks()
    PPO(envs, **ROLLOUT).learn(100)
    assert len({one.data_ptr() for one in envs.given}) == len(envs.given)


def test_going_on_begins_new_episodes(tmp_path):
    for make, _ in (CASES["PPO"], CASES["DQN"]):
        agent = make(Walks()).learn(100)
        agent.save(tmp_path / "agent.safetensors")
        again = [type(agent).load(tmp_path / "agent.safetensors", env=Walks()).learn(100) for _ in range(2)]
        np.testing.assert_array_equal(again[0].parameters, again[1].parameters)
        assert np.isfinite(again[0].parameters).all()


def test_an_end_that_is_not_shown_is_told():
    class Hiding(Walks):
        def step(self, actions):
            *rest, _ = Walks.step(self, actions)
            return *rest, {}

    with pytest.raises(RuntimeError, match="its infos have no 'final_obs'"):
        PPO(Hiding(), **ROLLOUT).learn(200)


def test_a_reset_of_others_is_told():
    class Careless(Walks):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    with pytest.raises(RuntimeError, match="changed copies that were not named"):
        PPO(Careless(AutoresetMode.DISABLED), **ROLLOUT).learn(200)


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name):
    """In single precision: TF32 makes much of how differently host and GPU round the actions that they draw."""
    make, continuous = CASES[name]
    agent = make(Walks(device="cuda", continuous=continuous), precision="float32").learn(400)
    assert (agent.config.device, agent.device_reason) == ("cuda", "cuda: the observations of given:Walks are there")
    assert agent.learner.device.steps_itself(agent.source)
    assert all(one.is_cuda for one in agent.learner.envs.given.given)  # the actions
    assert 0 < max(agent.recent.lengths) <= LIMIT
    assert np.isfinite(agent.parameters).all()
    host = make(HostWalks(continuous=continuous), device="cuda", precision="float32").learn(400)
    assert abs(np.mean(agent.recent.returns) - np.mean(host.recent.returns)) < 5.0
    np.testing.assert_allclose(agent.parameters, host.parameters, atol=0.1)
