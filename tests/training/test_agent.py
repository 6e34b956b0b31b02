"""What every agent does: repeat itself for the same seed, go on where it was, be saved and loaded."""

import copy
import hashlib
import pickle

import gymnasium
import numpy as np
import pytest
from choosing import slow_but

import velocirl
from velocirl import A2C, PPO, Box, Discrete
from velocirl.runs.state_file import read_state, write_state
from velocirl.training.agent import Agent
from velocirl.training.persistence import Goal, algorithm_from

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "seed": 1,
         "shared": True, "activation": "tanh"}  # fmt: skip
BATCH = 96
NORMALISED = {"normalise_observations": True, "normalise_rewards": True}
AGENTS = {
    "choices": ("Counter-v0", {}),
    "masked": ("TicTacToe-v1", {"target_kl": 0.02}),
    "normalised continuous": ("IdentityContinuous-v0", NORMALISED),
    "environments": ("Counter-v0", {"minibatches": "environments", "gradient_accumulation": 2, "threads": 1}),
}


def build(name, **changes):
    environment, config = AGENTS[name]
    return PPO(environment, **{**SMALL, **config, **changes})


def digest(agent):
    return hashlib.sha256(agent.parameters.tobytes()).hexdigest()


def stop_at(steps):
    return lambda agent: agent.steps < steps


def assert_same_state(found, expected):
    """Every array that decides the future, and every plain value, bit for bit."""
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes(), name
    assert found.document == expected.document


@pytest.mark.parametrize("name", slow_but({"choices", "masked"}, AGENTS))
def test_same_seed_same_parameters(name):
    assert digest(build(name).learn(4 * BATCH)) == digest(build(name).learn(4 * BATCH))
    assert digest(build(name, seed=2).learn(4 * BATCH)) != digest(build(name).learn(4 * BATCH))


def test_same_seed_same_parameters_in_other_processes(run_script, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import hashlib, sys, velocirl\n"
        f"agent = velocirl.PPO('Counter-v0', **{SMALL!r}).learn({4 * BATCH})\n"
        "print(hashlib.sha256(agent.parameters.tobytes()).hexdigest())\n"
    )
    expected = digest(build("choices").learn(4 * BATCH))
    assert [run_script(script).strip() for _ in range(2)] == [expected] * 2


def test_a_seed_is_drawn_where_none_is_given():
    seeds = {PPO("Counter-v0", hidden=(4,)).config.seed for _ in range(3)}
    assert len(seeds) == 3
    drawn = build("choices", seed=None)
    again = build("choices", seed=drawn.config.seed)
    assert digest(drawn) == digest(again)


@pytest.mark.parametrize("name", slow_but({"choices", "masked"}, AGENTS))
def test_looking_does_not_change_training(name):
    """Acting and evaluating in between leave no trace in what is learnt."""

    def look(agent):
        agent.predict(agent.source.observation_space.sample())
        velocirl.evaluate(agent, episodes=2, seed=agent.steps, deterministic=False)

    assert digest(build(name).learn(4 * BATCH, look)) == digest(build(name).learn(4 * BATCH))


@pytest.mark.parametrize("name", slow_but({"choices", "masked"}, AGENTS))
def test_going_on_from_a_file_is_going_on(name, tmp_path):
    """Interrupted in the middle, saved, loaded by a new agent and led to its end, against never interrupted."""
    whole = build(name).learn(6 * BATCH)
    half = build(name).learn(6 * BATCH, stop_at(3 * BATCH))
    assert half.steps == 3 * BATCH
    assert not half.finished
    resumed = PPO.load(half.save(tmp_path / "half"))
    assert_same_state(resumed.state(), half.state())  # before it trains, and so it can be saved again
    resumed.prepare()
    assert_same_state(resumed.state(), half.state())
    resumed.learn()
    assert resumed.finished
    assert_same_state(resumed.state(), whole.state())
    half.learn()
    assert_same_state(half.state(), whole.state())


def test_going_on_after_the_end(tmp_path):
    whole = build("choices").learn(3 * BATCH).learn(2 * BATCH)
    first = build("choices").learn(3 * BATCH)
    assert first.finished
    assert first.goal == Goal(0, 3 * BATCH)
    resumed = PPO.load(first.save(tmp_path / "first.safetensors"))
    resumed.learn()  # there is nothing left to do
    assert_same_state(resumed.state(), first.state())
    resumed.learn(2 * BATCH)
    assert resumed.goal == Goal(3 * BATCH, 2 * BATCH)
    assert_same_state(resumed.state(), whole.state())


class Noise(gymnasium.Env):
    """Shows a random number at every step, so that two episodes are the same only if their seeds are."""

    observation_space, action_space = Box(0, 1, (1,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        return self.np_random.random(1, np.float32), 1.0, bool(self.np_random.random() < 0.1), False, {}


def test_gymnasium_goes_on_with_new_episodes(tmp_path):
    gymnasium.register("Noise-v0", Noise)
    try:
        seen = []

        def watch(agent):
            seen.append(agent.learner.collector.recorded.records["observation"][:, :-1].reshape(-1).copy())

        agent = PPO("gym:Noise-v0", normalise_observations=False, **SMALL)  # by which no number would come again
        agent.learn(3 * BATCH, [watch, stop_at(2 * BATCH)])
        resumed = PPO.load(agent.save(tmp_path / "noise"))
        assert resumed.parameters.tobytes() == agent.parameters.tobytes()
        resumed.learn(callbacks=watch)
        assert len(seen) == 3
        assert len(np.unique(np.concatenate(seen))) > 0.99 * 3 * BATCH
        twice = PPO.load(tmp_path / "noise.safetensors").learn()
        assert digest(twice) == digest(resumed)
    finally:
        gymnasium.registry.pop("Noise-v0")


def test_metrics_of_an_iteration():
    rows = []
    agent = build("choices").learn(5 * BATCH, lambda agent: rows.append(dict(agent.metrics)))
    assert [row["time/total_timesteps"] for row in rows] == [BATCH * k for k in range(1, 6)]
    assert [row["time/iterations"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["rollout/ep_rew_mean"] == rows[-1]["rollout/ep_rew_mean"] == 45
    assert rows[-1]["rollout/ep_len_mean"] == 10
    assert agent.recent.returns.maxlen == 100
    assert len(agent.recent.returns) == 6 * 8  # 80 steps of each copy
    assert sum(rows[-1][f"time/{phase}_share"] for phase in ("rollout", "estimate", "update")) == pytest.approx(1, 1e-3)


def test_the_mean_is_of_the_last_episodes_to_end():
    """Of a rollout with more than 100 ends the last hundred count, in the order of their ends."""
    agent = build("choices", num_envs=20, horizon=40)
    agent.prepare()
    lengths = np.arange(20) % 5 + 1
    agent.learner.collector.fleet.copies.params["length"] = lengths
    agent.learn(20 * 40)
    ends = [(t, copy) for t in range(40) for copy in range(20) if (t + 1) % lengths[copy] == 0]
    expected = [int(lengths[copy]) for _, copy in ends][-100:]
    assert len(ends) > 300
    assert list(agent.recent.lengths) == expected
    assert list(agent.recent.returns) == [length * (length - 1) / 2 for length in expected]
    assert agent.metrics["rollout/ep_len_mean"] == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10"])
def test_impossible_numbers_of_steps(wrong):
    with pytest.raises(ValueError, match="total_steps must be a whole number of at least 1"):
        build("choices").learn(wrong)


def test_nothing_to_go_on_with():
    with pytest.raises(ValueError, match=r"learn\(total_steps\)"):
        build("choices").learn()


def test_a_goal_is_reached_by_whole_rollouts():
    agent = build("choices").learn(BATCH + 1)
    assert agent.steps == 2 * BATCH
    assert agent.finished
    assert Goal(100, 200).progress(50) == 0
    assert Goal(100, 200).progress(200) == 0.5
    assert Goal(100, 200).progress(1000) == 1


def test_saved_and_loaded(tmp_path):
    agent = build("normalised continuous").learn(3 * BATCH)
    path = agent.save(tmp_path / "new" / "directory" / "model")
    assert path == tmp_path / "new" / "directory" / "model.safetensors"
    for kind in (PPO, Agent):
        loaded = kind.load(path.with_suffix(""))
        assert type(loaded) is PPO
        assert loaded.config == agent.config
        assert_same_state(loaded.state(), agent.state())
    seen = np.linspace(-1, 1, 11, dtype=np.float32)[:, None]
    for deterministic in (True, False):
        expected, _ = agent.predict(seen, deterministic=deterministic)
        np.testing.assert_array_equal(loaded.predict(seen, deterministic=deterministic)[0], expected)


def test_an_untrained_agent_is_saved_too(tmp_path):
    agent = build("choices")
    loaded = PPO.load(agent.save(tmp_path / "new"))
    assert digest(loaded.learn(2 * BATCH)) == digest(agent.learn(2 * BATCH))


def test_what_was_learnt_is_saved_without_what_training_needs(tmp_path):
    agent = build("normalised continuous").learn(3 * BATCH)
    loaded = PPO.load(agent.save(tmp_path / "small", training=False))
    assert not any(name.startswith(("fleet.", "learner.", "policy.")) for name in loaded.state().arrays)
    assert (loaded.steps, loaded.recent.returns) == (agent.steps, agent.recent.returns)
    seen = np.linspace(-1, 1, 11, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(loaded.predict(seen)[0], agent.predict(seen)[0])
    before = loaded.parameters.copy()
    assert loaded.learn(2 * BATCH).steps == 5 * BATCH
    assert not np.array_equal(loaded.parameters, before)


def test_a_pickled_agent_trains_on_where_it_was():
    agent = build("normalised continuous").learn(2 * BATCH)
    copies = pickle.loads(pickle.dumps(agent)), copy.deepcopy(agent)
    for one in copies:
        assert_same_state(one.state(), agent.state())
        assert one.metrics == agent.metrics
    assert digest(copies[0].learn(2 * BATCH)) == digest(agent.learn(2 * BATCH)) != digest(copies[1])


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_pickled_table_acts_as_before(rate):
    agent = velocirl.QLearning("FrozenLake-v1", seed=3, initial_value=rate)
    assert_same_state(pickle.loads(pickle.dumps(agent)).state(), agent.state())


def test_a_pickle_holds_an_environment_of_functions_and_no_object():
    limit = 7
    made_here = lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)  # noqa: E731 - which pickle refuses
    agent = PPO(made_here, device="python", num_envs=1, horizon=8, minibatch_size=8, hidden=(8,), seed=0)
    loaded = pickle.loads(pickle.dumps(agent))
    assert_same_state(loaded.state(), agent.state())
    assert velocirl.evaluate(loaded, episodes=2, seed=0).lengths.tolist() == [7, 7]
    agent = PPO(made_here(), device="python", num_envs=1, horizon=8, minibatch_size=8, hidden=(8,), seed=0)
    with pytest.raises(pickle.PicklingError, match=r"given as an object.*agent\.save\(path\)"):
        pickle.dumps(agent)


def test_models_of_something_else_are_refused(tmp_path):
    path = build("choices").save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"was trained with .*; IdentityContinuous-v0 has"):
        PPO.load(path, env="IdentityContinuous-v0")
    with pytest.raises(ValueError, match=r"holds a ppo agent; load it with PPO\.load"):
        A2C.load(path)
    with pytest.raises(FileNotFoundError):
        PPO.load(tmp_path / "nothing")
    state = read_state(path)
    for change, message in (
        ({"algorithm": "qpo"}, "did you mean 'ppo'"),
        ({"config": {**state.document["config"], "epoch": 3}}, "did you mean 'epochs'"),
        ({"environment": "Conter-v0"}, "was trained in 'Conter-v0', .* env="),
        ({"steps": None}, "is not an agent of this version"),
    ):
        write_state(tmp_path / "other.safetensors", state.arrays, {**state.document, **change})
        with pytest.raises(ValueError, match=message):
            PPO.load(tmp_path / "other.safetensors")
    fewer = {name: array for name, array in state.arrays.items() if name != "network.parameters"}
    write_state(tmp_path / "other.safetensors", fewer, state.document)
    with pytest.raises(ValueError, match=r"network\.parameters"):
        PPO.load(tmp_path / "other.safetensors")
    wrong = {**state.arrays, "network.parameters": state.arrays["network.parameters"][:-1]}
    write_state(tmp_path / "other.safetensors", wrong, state.document)
    with pytest.raises(ValueError, match=r"network\.parameters is float32"):
        PPO.load(tmp_path / "other.safetensors")


def test_a_model_of_a_users_environment_needs_it(define, tmp_path):
    environment = define()
    path = PPO(environment, **SMALL).save(tmp_path / "model")
    name = environment.id
    velocirl.engine.registry._environments.pop(name)
    with pytest.raises(ValueError, match=name):
        PPO.load(path)
    loaded = PPO.load(path, env=environment)
    assert loaded.source.native is environment
    assert loaded.parameters.tobytes() == PPO(environment, **SMALL).parameters.tobytes()


def test_algorithms_by_name():
    assert algorithm_from("PPO") is PPO
    assert algorithm_from("a2c") is A2C
    with pytest.raises(ValueError, match="did you mean 'ppo'"):
        algorithm_from("pp0")


def test_environments_that_an_agent_cannot_use():
    with pytest.raises(ValueError, match="is compiled and needs no workers"):
        build("choices", workers=2).learn(BATCH)
    with pytest.raises(ValueError, match="workers must be at most num_envs=6"):
        build("choices", workers=7)


def test_threads_that_would_get_nothing_are_not_used():
    assert build("choices", num_envs=3, threads=4).config.threads == 3
    assert build("choices", num_envs=2, threads=16).config.threads == 2
