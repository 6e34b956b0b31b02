"""Parameters of the environment in training: drawn, one for each copy, changed on the way, saved and resumed."""

import json

import numpy as np
import pytest

import velocirl
from velocirl import DQN, PPO, SAC, TD3, Box, Discrete, Environment, QLearning, between, float32, int32, record, uniform
from velocirl.runs.state_file import read_state, write_state
from velocirl.training.settings.params import savable

SMALL = {"hidden": (4,), "num_envs": 4, "seed": 1, "threads": 1}
ROLLOUT = {**SMALL, "horizon": 8, "minibatch_size": 16, "epochs": 1}
MEMORY = {**SMALL, "batch_size": 8, "learning_starts": 16, "buffer_size": 200}
# Of each way to learn one, with a parameter that can be drawn and between which numbers.
AGENTS = {
    "ppo": (lambda **more: PPO("CartPole-v1", **{**ROLLOUT, **more}), "gravity", 5, 15),
    "ppo in python": (lambda **more: PPO("CartPole-v1", device="python", **{**ROLLOUT, **more}), "gravity", 5, 15),
    "dqn": (lambda **more: DQN("CartPole-v1", **{**MEMORY, **more}), "gravity", 5, 15),
    "dqn in python": (lambda **more: DQN("CartPole-v1", device="python", **{**MEMORY, **more}), "gravity", 5, 15),
    "sac": (lambda **more: SAC("Pendulum-v1", **{**MEMORY, **more}), "gravity", 5, 15),
    "td3": (lambda **more: TD3("Pendulum-v1", **{**MEMORY, **more}), "gravity", 5, 15),
    "q-learning": (lambda **more: QLearning("FrozenLake-v1", seed=1, num_envs=4, **more), "is_slippery", 0, 1),
}
SLOW = dict.fromkeys(("sac", "td3"), pytest.mark.slow)  # learners from a memory as dqn is
EACH = pytest.mark.parametrize(
    ("make", "name", "low", "high"),
    [pytest.param(*case, id=name, marks=SLOW.get(name, ())) for name, case in AGENTS.items()],
)


def values_of(agent, name):
    return agent.learner.fleet.copies.params[name]


def same(first, second):
    np.testing.assert_array_equal(first.parameters, second.parameters)
    np.testing.assert_array_equal(first.learner.fleet.copies.params, second.learner.fleet.copies.params)
    np.testing.assert_array_equal(first.learner.fleet.copies.state, second.learner.fleet.copies.state)


@EACH
def test_what_is_drawn_is_resumed_bit_for_bit(make, name, low, high, tmp_path):
    agent = make(params={name: uniform(low, high)}).learn(64)
    assert ((values_of(agent, name) >= low) & (values_of(agent, name) <= high)).all()
    assert agent.config.params == {name: f"uniform({low}, {high})"}
    again = velocirl.load(agent.save(tmp_path / "agent"))
    same(agent.learn(64), again.learn(64))
    assert velocirl.evaluate(again, episodes=2, seed=0).lengths.shape == (2,)


@EACH
def test_what_is_set_on_the_way_is_saved_and_resumed(make, name, low, high, tmp_path):
    """From nothing drawn to a draw, to other bounds, to one number each, and to one for all."""
    agent = make().learn(64)
    before = agent.parameters.copy()
    for given in (uniform(low, high), uniform(low, low), [low, high, low, high], high):
        agent.set_params({name: given})
        np.testing.assert_array_equal(agent.parameters, before)
        again = velocirl.load(agent.save(tmp_path / "agent"))
        same(agent.learn(64), again.learn(64))
        before = agent.parameters.copy()
    np.testing.assert_array_equal(values_of(agent, name), high)
    assert agent.config.params == {name: high}


def test_one_number_for_each_copy_holds_in_training():
    agent = PPO("CartPole-v1", params={"gravity": np.array([1.0, 2.0, 3.0, 4.0])}, **ROLLOUT).learn(32)
    np.testing.assert_array_equal(values_of(agent, "gravity"), [1, 2, 3, 4])
    assert agent.config.params == {"gravity": [1.0, 2.0, 3.0, 4.0]}
    np.testing.assert_array_equal(agent.source.params_for(2)["gravity"], [1, 3])
    np.testing.assert_array_equal(agent.source.params_for(6)["gravity"], [1, 1, 2, 3, 3, 4])
    np.testing.assert_array_equal(agent.source.params_of([3, 0])["gravity"], [4, 1])


def test_a_callback_makes_a_curriculum(tmp_path):
    seen = []

    def harder(agent):
        seen.append(float(values_of(agent, "gravity").max()))
        agent.set_params(gravity=float(agent.iterations))

    agent = PPO("CartPole-v1", device="python", **ROLLOUT).learn(96, harder)
    assert seen == [pytest.approx(9.8), 1.0, 2.0]
    assert agent.config.params == {"gravity": 3.0}

    def drawn(agent):
        agent.set_params(gravity=uniform(agent.iterations, agent.iterations + 1))

    agent.learn(64, drawn)  # which are other learners
    assert agent.steps == 160
    assert agent.source.params == {"gravity": uniform(5, 6)}


def test_numbers_hold_at_once_and_draws_from_the_next_episode_on():
    agent = PPO("CartPole-v1", device="python", params={"gravity": uniform(5, 15)}, **ROLLOUT).learn(8)
    drawn = values_of(agent, "gravity").copy()
    agent.set_params(gravity=uniform(100, 200))
    np.testing.assert_array_equal(values_of(agent, "gravity"), drawn)
    agent.learner.fleet.reset()
    assert (values_of(agent, "gravity") >= 100).all()
    agent.set_params({"gravity": 3.0}, pole_mass=0.2)
    np.testing.assert_array_equal(values_of(agent, "gravity"), np.float32(3.0))
    np.testing.assert_array_equal(values_of(agent, "pole_mass"), np.float32(0.2))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gravty": uniform(1, 2)}, "CartPole-v1: Params has no field 'gravty': did you mean 'gravity'?"),
        ({"gravity": "uniform(2, 1)"}, r"uniform\(2, 1\) is upside down: write uniform\(1, 2\)"),
        ({"gravity": [1.0, 2.0]}, "CartPole-v1: params have 2 values of gravity, and num_envs is 4; give one value"),
        ({"gravity": "high"}, r"CartPole-v1: Params.gravity must be a number, uniform\(low, high\)"),
        ({"gravity": {}}, "CartPole-v1: Params.gravity must be finite numbers"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once_and_nothing_is_lost(params, message):
    with pytest.raises(ValueError, match=message):
        PPO("CartPole-v1", params=params, **ROLLOUT)
    agent = PPO("CartPole-v1", device="python", params={"gravity": uniform(5, 15)}, **ROLLOUT)
    for _ in range(2):  # before training, and after it
        with pytest.raises(ValueError, match=message):
            agent.set_params(params)
        assert agent.config.params == {"gravity": "uniform(5, 15)"}
        agent.learn(32)
    assert (values_of(agent, "gravity") >= 5).all()


def test_another_range_can_be_given_where_an_agent_is_loaded(tmp_path):
    agent = PPO("CartPole-v1", device="python", **ROLLOUT).learn(32)
    path = agent.save(tmp_path / "agent")
    loaded = velocirl.load(path, params={"gravity": uniform(20, 21)})
    loaded.learn(32).learner.fleet.reset()
    assert (values_of(loaded, "gravity") >= 20).all()
    assert velocirl.load(path, params=None).config.params == {}


def test_draws_of_a_hostile_file_are_refused(tmp_path):
    """A length beyond 20 would be an index beyond an array, in an environment that has one."""
    environment = walks(Box(0, 100, (1,)))
    agent = PPO(environment, device="python", params={"length": uniform(2, 5)}, **ROLLOUT).learn(32)
    state, wrong = read_state(agent.save(tmp_path / "agent")), tmp_path / "wrong.safetensors"
    texts = {"uniform(2, 99)": "must be from 1 to 20", "uniform(5, 2)": "upside down", "x": "must be a number"}
    for text, message in texts.items():
        document = json.loads(json.dumps(state.document))
        document["config"]["params"]["length"] = text
        write_state(wrong, state.arrays, document)
        with pytest.raises(ValueError, match=message):
            velocirl.load(wrong, environment)
    rows = state.arrays["fleet.params"].copy()
    rows["_length_high"] = 99
    write_state(wrong, {**state.arrays, "fleet.params": rows}, state.document)
    with pytest.raises(ValueError, match=r"fleet.params._length_high is 99 at \[0\]; it must be from 1 to 20"):
        velocirl.load(wrong, environment)


def test_a_memory_in_a_file_is_not_opened_twice(tmp_path):
    agent = DQN("CartPole-v1", buffer_file=str(tmp_path / "memory"), **MEMORY).learn(64)
    with pytest.raises(ValueError, match="save the agent, and load it with params="):
        agent.set_params(gravity=uniform(5, 15))
    agent.set_params(gravity=5.0)
    agent.learn(64)
    np.testing.assert_array_equal(values_of(agent, "gravity"), 5)


# Gymnasium's ----------------------------------------------------------------------------------------------------------


def test_keyword_arguments_of_any_kind_reach_gymnasium_and_are_saved(tmp_path):
    agent = QLearning("gym:FrozenLake-v1", params={"is_slippery": False, "desc": ["SF", "FG"]}, num_envs=1, seed=1)
    agent.learn(64)
    again = velocirl.load(agent.save(tmp_path / "agent"))
    assert again.source.params == {"is_slippery": False, "desc": ["SF", "FG"]}
    with pytest.raises(ValueError, match="make another agent"):
        again.set_params(desc=None, map_name="8x8")
    again.set_params(is_slippery=True)
    assert again.learn(64).source.params["is_slippery"] is True


def test_copies_of_gymnasium_are_made_anew_with_other_arguments():
    agent = PPO("gym:FrozenLake-v1", device="python", **{**ROLLOUT, "num_envs": 2}).learn(16)
    before = agent.learner.envs
    agent.set_params(is_slippery=False)
    assert agent.learner.envs is not before
    assert before.closed
    assert not agent.learn(16).learner.envs.get_attr("spec")[0].kwargs["is_slippery"]


class Sharp:
    """Something that no file can hold."""


def test_what_no_file_holds_is_asked_for(tmp_path):
    import gymnasium

    class Blunt(gymnasium.Wrapper):
        def __init__(self, edge):
            super().__init__(gymnasium.make("CartPole-v1"))
            assert isinstance(edge, Sharp)

    gymnasium.register("Blunt-v0", entry_point=Blunt)
    try:
        agent = PPO("gym:Blunt-v0", device="python", params={"edge": Sharp()}, **ROLLOUT)
        path = agent.learn(32).save(tmp_path / "agent")
        with pytest.raises(ValueError, match="edge of gym:Blunt-v0 was a Sharp, which no file holds: give params="):
            velocirl.load(path)
        assert velocirl.load(path, params={"edge": Sharp()}).learn(32).steps == 64
    finally:
        gymnasium.registry.pop("Blunt-v0")


def test_gymnasiums_parameters_are_not_drawn():
    for given in (uniform(0, 1), "uniform(0, 1)"):
        with pytest.raises(ValueError, match=r"cannot draw is_slippery from uniform\(0, 1\) for each episode"):
            QLearning("gym:FrozenLake-v1", params={"is_slippery": given})


def test_what_json_holds_is_saved_as_it_is():
    assert savable({"a": (1, None), "b": {"c": "d"}}) == {"a": [1, None], "b": {"c": "d"}}
    assert savable({1: 2}) == {"not saved": "dict"}


# Reports --------------------------------------------------------------------------------------------------------------


@record
class State:
    length: int32 = between(0, 100)
    weight: float32


@record
class Params:
    length: int32 = between(1, 20, default=3)


def begin(state, params, rng):
    state.length = 0
    state.weight = 0.5


def move(state, params, action, rng):
    state.length += 1
    state.weight += 1.0
    return 1.0, state.length >= params.length


def look(state, params, observation):
    observation[0] = state.length


def walks(observation):
    return Environment(
        "Walks-v0", state=State, params=Params, observation=observation, action=Discrete(2),
        reset=begin, step=move, observe=look, report=("length", "weight"), max_steps=50,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (PPO, ROLLOUT),
        (PPO, {**ROLLOUT, "device": "python"}),
        pytest.param(DQN, MEMORY, marks=pytest.mark.slow),
        (DQN, {**MEMORY, "device": "python"}),
        (QLearning, {"seed": 1, "num_envs": 4}),
    ],
    ids=["ppo", "ppo in python", "dqn", "dqn in python", "q-learning"],
)
def test_reported_fields_are_those_of_the_episodes_that_ended(algorithm, settings, tmp_path):
    """The state counts the steps of its episode, as the engine does: means over the last episodes are the same."""
    observation = Discrete(64) if algorithm is QLearning else Box(0, 100, (1,))
    environment = walks(observation)
    agent = algorithm(environment, params={"length": uniform(2, 6)}, **settings)
    agent.learn(100 if algorithm is not QLearning else 20_000)
    length = agent.metrics["rollout/ep_len_mean"]
    assert 2 < length < 6
    assert agent.metrics["episode/length"] == pytest.approx(length)
    assert agent.metrics["episode/weight"] == pytest.approx(length + 0.5)
    again = velocirl.load(agent.save(tmp_path / "agent"), environment)
    assert {name: list(values) for name, values in again.recent.reported.items()} == {
        "length": list(map(float, agent.recent.lengths)),
        "weight": [one + 0.5 for one in agent.recent.lengths],
    }
