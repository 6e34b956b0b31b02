"""skrl: it recognises fleets as Gymnasium's vectors, and trains on them."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import velocirl

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_torch_thread")]


@pytest.fixture(autouse=True)
def _installed():
    pytest.importorskip("skrl", reason="needs skrl: pip install 'velocirl[clients]'")


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "gym:CartPole-v1"])
def test_it_takes_a_fleet_for_what_it_is(name, mode):
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.envs.wrappers.torch.gymnasium_envs import GymnasiumWrapper

    envs = wrap_env(velocirl.make_vec(name, 3, autoreset_mode=mode), verbose=False)
    assert isinstance(envs, GymnasiumWrapper)
    assert envs.num_envs == 3
    seen, _ = envs.reset()
    plain = velocirl.make_vec(name, 3, autoreset_mode=mode)
    assert (envs.observation_space, envs.action_space) == (plain.single_observation_space, plain.single_action_space)
    assert seen.shape[0] == 3
    envs.close()


def test_it_takes_a_single_environment_and_worker_processes():
    from skrl.envs.wrappers.torch import wrap_env

    assert wrap_env(velocirl.make("CartPole-v1"), verbose=False).num_envs == 1
    workers = wrap_env(velocirl.make_vec("gym:CartPole-v1", 2, workers=1), verbose=False)
    assert workers.num_envs == 2
    workers.close()


def test_ppo_learns_on_a_fleet(tmp_path):
    """Seed 0, 3,000 steps of 16 copies: episodes of more than 100 steps, where acting at random gives 22."""
    from skrl.agents.torch.ppo import PPO
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils import set_seed
    from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model

    set_seed(0)
    fleet = velocirl.make_vec("CartPole-v1", 16, seed=0)
    envs = wrap_env(fleet, verbose=False)
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "tanh"}]
    spaces = {"observation_space": envs.observation_space, "action_space": envs.action_space, "device": "cpu"}
    models = {
        "policy": categorical_model(**spaces, network=layers, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=layers, output="ONE"),
    }
    experiment = {"write_interval": 0, "checkpoint_interval": 0, "directory": str(tmp_path)}
    settings = {
        "rollouts": 64,
        "learning_epochs": 6,
        "mini_batches": 4,
        "learning_rate": 2e-3,
        "experiment": experiment,
    }
    memory = RandomMemory(memory_size=64, num_envs=16, device="cpu")
    agent = PPO(models=models, memory=memory, cfg=settings, **spaces)
    trainer = {"timesteps": 3000, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=envs, agents=agent, cfg=trainer).train()
    assert np.mean(fleet.copies.episode_length) > 100
    envs.close()
