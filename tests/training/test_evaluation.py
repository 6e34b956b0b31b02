"""Evaluation: whole episodes, the same number from every copy."""

import gymnasium
import numpy as np
import pytest
from choosing import slow_but
from costly import Costly, Silent
from gymnasium.vector import AutoresetMode
from heated_tank import heat_fully, make_tank

import velocirl
from velocirl import PPO, Evaluation, evaluate
from velocirl.trajectories.figures import figures_of


class Fixed:
    """A model that always does the same, and remembers what it was asked."""

    def __init__(self, action=0):
        self.action, self.calls = action, []

    def predict(self, observation, *, deterministic, action_masks=None):
        self.calls.append((len(observation), deterministic, action_masks))
        return np.full(len(observation), self.action), None


class Counting(Fixed):
    """A recurrent model whose state is the number of observations of this episode, and what it saw with it."""

    def __init__(self):
        super().__init__()
        self.asked, self.counted = [], []

    def predict(self, observation, state=None, episode_start=None, *, deterministic, action_masks=None):
        self.asked.append((state is None, episode_start is None))
        state = np.zeros(len(observation)) if state is None else np.where(episode_start, 0.0, state)
        self.counted.append((observation[:, 0].tolist(), state.tolist()))
        actions, _ = super().predict(observation, deterministic=deterministic, action_masks=action_masks)
        return actions, state + 1.0


def vector(lengths, autoreset_mode=AutoresetMode.SAME_STEP):
    params = {"length": np.array(lengths)}
    return velocirl.make_vec("Counter-v0", len(lengths), params=params, autoreset_mode=autoreset_mode)


def test_every_copy_plays_the_same_number_of_episodes():
    """Were the first episodes to end counted, the short ones would be most of them."""
    result = evaluate(Fixed(), vector([1, 20, 5]), episodes=7)
    assert sorted(result.lengths.tolist()) == [1, 1, 1, 5, 5, 20, 20]
    assert sorted(result.returns.tolist()) == [0, 0, 0, 10, 10, 190, 190]
    assert result.mean_return == pytest.approx(400 / 7)
    assert result.std_return == pytest.approx(np.std([0, 0, 0, 10, 10, 190, 190]))
    assert str(result) == f"{400 / 7:.2f} +- {result.std_return:.2f} over 7 episodes of 7.6 steps"


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_returns_are_in_the_order_of_episodes(mode):
    result = evaluate(Fixed(), vector([1, 20, 5], mode), episodes=7)
    assert result.lengths.tolist() == [1, 20, 5, 1, 20, 5, 1]
    assert result.returns.tolist() == [0, 190, 10, 0, 190, 10, 0]


class Drawn(gymnasium.Env):
    """Pays in its first step what was drawn at the beginning; one action ends sooner than the other."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.drawn, self.steps = self.np_random.uniform(), 0
        return np.array([self.drawn], np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps >= (1 + int(20 * self.drawn) if action == 0 else 3)
        return np.zeros(1, np.float32), float(self.drawn if self.steps == 1 else 0), over, False, {}


def test_policies_can_be_compared_in_pairs_by_their_seed():
    one, other = (evaluate(Fixed(action), Drawn, episodes=20, seed=5) for action in (0, 1))
    assert one.lengths.tolist() != other.lengths.tolist()
    assert len(set(one.returns.tolist())) == 20
    np.testing.assert_array_equal(one.returns, other.returns)
    assert (evaluate(Fixed(), Drawn, episodes=20, seed=6).returns != one.returns).all()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_state_is_carried_on_to_the_end_of_its_episode(mode):
    """Counter shows how many steps its episode has had, which is what the model counts in its state."""
    model = Counting()
    result = evaluate(model, vector([1, 20, 5], mode), episodes=7)
    assert sorted(result.lengths.tolist()) == [1, 1, 1, 5, 5, 20, 20]
    assert model.asked == [(True, True)] + [(False, False)] * (len(model.asked) - 1)
    assert all(seen == state for seen, state in model.counted)
    assert len(model.counted) == (40 if mode == AutoresetMode.SAME_STEP else 41)


def test_a_state_in_an_environment_of_gymnasium():
    model = Counting()
    assert evaluate(model, "gym:velocirl/Counter-v0", episodes=20).returns.tolist() == [45.0] * 20
    assert len(model.counted) == 30  # 8 copies, of which the first four play three episodes
    assert all(seen == state for seen, state in model.counted)


def test_a_model_that_gives_no_state_is_asked_for_none():
    """Its predict has no arguments for one, nor for masks, as in other libraries."""

    class Plain:
        def predict(self, observation, deterministic):
            return np.full(len(observation), int(deterministic)), None

    assert evaluate(Plain(), "Counter-v0", episodes=3).returns.tolist() == [45.0] * 3


def test_a_model_of_stable_baselines3():
    library = pytest.importorskip("stable_baselines3")
    model = library.PPO("MlpPolicy", gymnasium.make("CartPole-v1"), seed=0, device="cpu")
    for env in ("CartPole-v1", "gym:CartPole-v1"):  # which pays 1 for each step
        result = evaluate(model, env, episodes=5, seed=0)
        assert result.returns.tolist() == result.lengths.tolist()
        assert result.returns.tolist() == evaluate(model, env, episodes=5, seed=0).returns.tolist()


def test_an_agent_with_a_memory():
    """Two episodes of 8 steps in every copy, by hand: the state is carried on within each and not beyond."""
    pytest.importorskip("torch")
    agent = PPO("Memory-v0", network="lstm(16)", num_envs=2, horizon=4, threads=1, seed=3)

    def by_hand(remembers):
        envs = velocirl.make_vec("Memory-v0", 40, seed=5)
        observations, _ = envs.reset(seed=5)
        returns = []
        for _ in range(2):
            state, total = None, np.zeros(40)
            for _ in range(8):
                actions, after = agent.predict(observations, state, deterministic=True)
                state = after if remembers else None
                observations, rewards, *_ = envs.step(actions)
                total += rewards
            returns += total.tolist()
        return returns

    assert evaluate(agent, velocirl.make_vec("Memory-v0", 40), 80, seed=5).returns.tolist() == by_hand(remembers=True)
    assert by_hand(remembers=True) != by_hand(remembers=False)


@pytest.mark.parametrize(("episodes", "copies"), [(1, 1), (5, 5), (128, 128), (300, 128)])
def test_number_of_episodes(episodes, copies):
    model = Fixed()
    result = evaluate(model, "Counter-v0", episodes=episodes)
    assert result.returns.tolist() == [45.0] * episodes
    assert result.lengths.tolist() == [10] * episodes
    assert {count for count, _, _ in model.calls} == {copies}


def test_masks_and_determinism_reach_the_model():
    model = Fixed()
    evaluate(model, "TicTacToe-v1", episodes=3, seed=0, deterministic=False)
    assert all(masks.shape == (3, 9) and not deterministic for _, deterministic, masks in model.calls)
    evaluate(model, "Counter-v0", episodes=3)
    assert model.calls[-1] == (3, True, None)


def test_seeds():
    results = [evaluate(Fixed(), "Bandit-v0", episodes=50, seed=seed).returns.tolist() for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0] != results[2]


def test_of_an_agent_in_its_own_environment():
    agent = PPO("Counter-v0", hidden=(16, 16), num_envs=6, horizon=16, threads=2, seed=1)
    assert evaluate(agent, episodes=4).returns.tolist() == [45.0] * 4
    assert evaluate(agent, "gym:velocirl/Counter-v0", episodes=2).lengths.tolist() == [10] * 2


@pytest.mark.parametrize("network", slow_but({None}, [None, "mlp(16)", "mlp(16) gru(8)"]))
def test_of_an_agent_as_it_is_now(network, tmp_path):
    """What was learnt since the last evaluation counts: it is that of the agent that is read from a file."""
    pytest.importorskip("torch")
    settings = {"num_envs": 6, "horizon": 16, "minibatch_size": 48, "learning_rate": 0.02, "threads": 1, "seed": 1}
    agent = PPO("IdentityContinuous-v0", network=network, normalise_observations=True, **settings)
    results = [evaluate(agent, episodes=8, seed=1).returns.tolist()]
    for _ in range(2):
        agent.learn(2 * 96)
        results.append(evaluate(agent, episodes=8, seed=1).returns.tolist())
        assert results[-1] == evaluate(PPO.load(agent.save(tmp_path / "model")), episodes=8, seed=1).returns.tolist()
    assert results[0] != results[1] != results[2]


def test_what_cannot_be_evaluated():
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(Fixed(), "Counter-v0", episodes=0)
    with pytest.raises(ValueError, match="say in which environment"):
        evaluate(Fixed())


def test_an_evaluation_is_a_value():
    result = Evaluation(np.array([1.0, 3.0]), np.array([4, 6]))
    assert (result.mean_return, result.std_return) == (2, 1)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_costs_violations_and_stops_of_a_plant_are_those_of_its_trajectory(mode):
    tank = make_tank(max_steps=30)
    envs = velocirl.make_vec(tank, 5, seed=3, device="python", autoreset_mode=mode)
    found = velocirl.evaluate(heat_fully, envs, 5, seed=3)
    rolled = figures_of(velocirl.rollout(heat_fully, tank, 5, 3, device="python"))
    assert sorted(found.lengths) == sorted(rolled["length"])
    for name, costs in found.costs.named().items():  # in plain Python all of them
        assert sorted(costs) == sorted(rolled[name]), name
    if mode == AutoresetMode.DISABLED:  # its adapter names no constraints
        assert (found.costs.stopped, found.costs.by_constraint) == (None, {})
        return
    assert sorted(found.costs.stopped) == sorted(rolled["emergency_stops"].astype(bool))
    assert found.costs.stopped.all()
    assert found.costs.violated.all()
    assert "emergency stops: 5 of 5, 100% (47.8% to 100%)" in str(found)


def test_without_constraints_there_are_no_costs():
    found = velocirl.evaluate(lambda _: 0, velocirl.make_vec("CartPole-v1", 2, device="python"), 2, seed=1)
    assert found.costs is None
    assert "\n" not in str(found)


def test_costs_that_infos_tell():
    """An episode costs 0.5 + 1 + 1.5; nobody says why it ended."""
    still = lambda _: np.zeros(1, np.float32)  # noqa: E731
    found = velocirl.evaluate(still, Costly, 4, seed=1)
    assert found.costs.cost.tolist() == [3.0] * 4
    assert (found.costs.stopped, found.costs.by_constraint) == (None, {})
    assert "violations: 4 of 4, 100%" in str(found)
    assert sorted(velocirl.evaluate(still, [Costly, Silent], 4, seed=1).costs.cost) == [0.0, 0.0, 3.0, 3.0]
    assert velocirl.evaluate(still, Silent, 2).costs is None
