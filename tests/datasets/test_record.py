"""Recording: every step of every copy in whole episodes, as a single copy has them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple

import velocirl
from velocirl.buffers.data.columns import columns_of
from velocirl.buffers.data.info import DatasetInfo
from velocirl.controllers import Random
from velocirl.datasets import record
from velocirl.datasets.collecting import Steps, first_steps
from velocirl.datasets.noise import Noise
from velocirl.datasets.record import copies_for
from velocirl.datasets.references import Reference

PLANT = "ChemicalReactor-v0"


def counter_steps(copies, lengths, rounds, room):
    """Copies whose observation is [copy, episode, step]; copy c has episodes of lengths[c] steps."""
    info = DatasetInfo(Box(-np.inf, np.inf, (3,), np.float32), Discrete(100), constraints=("late",))
    collected, found = Steps(info, columns_of(info), copies, room), []
    episode, step = np.zeros(copies, int), np.zeros(copies, int)
    for now in range(rounds):
        seen = np.stack([np.arange(copies), episode, step], 1).astype(np.float32)
        step += 1
        ended = step == lengths
        after = np.stack([np.arange(copies), episode, step], 1).astype(np.float32)
        numbers = {
            "rewards": step.astype(np.float32),
            "costs": (step > 2)[:, None].astype(np.float32),
            "terminations": ended & (episode % 2 == 0),
            "truncations": ended & (episode % 2 == 1),
        }
        collected.add(seen, step - 1, numbers)
        if ended.any():
            collected.final(after)
        episode += ended
        step[ended] = 0
        if now == rounds - 1:
            collected.cut(np.stack([np.arange(copies), episode, step], 1).astype(np.float32))
        if now == rounds - 1 or collected.full:
            found.append(velocirl.Dataset(info, collected.take()))
    for one in found:
        one.validate()
    return velocirl.Dataset.concatenate(found)


@pytest.mark.parametrize("room", [1, 2, 5, 100])
def test_copies_that_end_at_their_own_times_give_whole_episodes(room):
    lengths, rounds = np.array([3, 4, 11]), 10
    data = counter_steps(3, lengths, rounds, room)
    assert len(data) == 30
    expected = {
        (copy, episode, min(length, rounds - episode * length))
        for copy, length in enumerate(lengths)
        for episode in range(-(-rounds // length))
    }
    found = [data.episode(k) for k in range(data.episodes)]
    assert {(*map(int, one.observations[0][:2]), len(one)) for one in found} == expected
    for one in found:
        steps = np.arange(len(one) + 1)
        assert (one.observations[:, :2] == one.observations[0, :2]).all()
        assert one.observations[:, 2].tolist() == steps.tolist()
        assert one.actions.tolist() == steps[:-1].tolist()
        assert one.costs[:, 0].tolist() == (steps[1:] > 2).tolist()
        whole = len(one) == lengths[int(one.observations[0, 0])]
        assert one.terminated == (whole and one.observations[0, 1] % 2 == 0)


def test_what_is_recorded_is_what_the_environment_does(tmp_path):
    native = velocirl.engine.registry.find(PLANT)
    path = tmp_path / "plant.vds"
    data = velocirl.record_dataset(
        native.controller, PLANT, steps=50, path=path, device="python", references={"random": 0.0}
    )
    assert (len(data), data.path, data.info.environment) == (50, path, PLANT)
    assert tuple(data.info.signals) == tuple(native.signals)
    assert data.info.constraints == tuple(one.name for one in native.constraints)
    seen = velocirl.rollout(native.controller, PLANT, 1, seed=0, device="python", max_steps=50)
    for place, name in enumerate(seen.signals):
        np.testing.assert_array_equal(data.observations[: len(seen), place], seen.signals[name].values)
    for place, name in enumerate(seen.actuators):
        np.testing.assert_array_equal(data.actions[: len(seen) - 1, place], seen.actuators[name].values[1:])
    np.testing.assert_array_equal(data.rewards[: len(seen) - 1], seen.reward[1:])


def test_the_same_seed_gives_the_same_data_and_in_memory_it_is_the_same(tmp_path):
    def made(seed, path=None):
        options = {"steps": 40, "device": "python", "references": {}, "noise": 0.2}
        return velocirl.record_dataset(Random(seed), "Pendulum-v1", seed=seed, path=path, **options)

    one = made(1)
    assert one.checksum == made(1, tmp_path / "data.vds").checksum
    assert one.checksum != made(2).checksum


def test_an_environment_that_steps_in_python_is_recorded_too():
    data = velocirl.record_dataset(lambda _: 1, "gym:CartPole-v1", steps=30)
    assert data.info.environment == "gym:CartPole-v1"
    assert len(data) == 30
    assert (data.actions == 1).all()
    assert data.terminations.sum() >= 1
    data.validate()


class Costly(gymnasium.Wrapper):
    """CartPole that tells what a step cost: whether the pole leans to the right."""

    def step(self, action):
        observation, *rest, info = self.env.step(action)
        return observation, *rest, {**info, "cost": float(observation[2] > 0)}


def test_the_cost_that_an_environment_tells_is_kept():
    data = velocirl.record_dataset(lambda _: 1, lambda: Costly(gymnasium.make("CartPole-v1")), steps=60)
    assert data.info.constraints == ("cost",)
    after = next(data.transitions()).next_observations
    assert data.costs[:, 0].tolist() == (after[:, 2] > 0).tolist()
    assert 0 < data.costs.mean() < 1


def test_copies_are_chosen_so_that_episodes_are_whole():
    assert copies_for(1_000_000, 360, 1024) * 360 * 4 <= 1_000_000
    assert copies_for(360_000, 360, 1024) == 250
    assert 10_000 % copies_for(10_000, 360, 1024) == 0
    assert copies_for(10, 360, 1024) == 1
    assert copies_for(10_000, None, 8) == 8


def test_noise_keeps_to_the_limits_and_is_as_large_as_it_says():
    space = Tuple((Box(-2.0, 4.0, (1,), np.float32), Discrete(3, start=1), MultiDiscrete([2, 5])))
    actions = np.zeros((20_000, 1), np.float32), np.full(20_000, 2), np.tile([1, 1], (20_000, 1))
    numbers, choices, several = Noise(space, 0.1, seed=0)(actions)
    assert numbers.dtype == np.float32
    assert abs(numbers.std() - 0.3) < 0.01
    assert abs((choices != 2).mean() - 0.1 * 2 / 3) < 0.01
    assert set(np.unique(choices)) == {1, 2, 3}
    assert several[:, 1].max() == 4
    wide, *_ = Noise(space, 1.0, seed=0)(actions)
    assert (wide.min(), wide.max()) == (-2.0, 4.0)
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        Noise(space, 2.0, 0)


def test_reference_returns_are_measured_and_scores_follow(monkeypatch):
    found = {"random": Reference(np.array([0.5, 1.5])), "expert": Reference(np.array([3.0, 3.0]))}
    monkeypatch.setattr(record, "measure_references", lambda *_, **__: found)
    data = velocirl.record_dataset(lambda _: 0, "Counter-v0", steps=20, device="python", level="expert")
    assert data.info.normalised(2.0) == 50.0
    assert data.info.reference_episodes == {"random": 2, "expert": 2}
    low, high = data.info.reference_intervals["random"]
    assert (low, high) == pytest.approx((1.0 - 12.706 * 0.5, 1.0 + 12.706 * 0.5), rel=1e-4)  # Student's t of one degree
    assert data.info.reference_intervals["expert"] == (3.0, 3.0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"steps": 0}, "at least 1"), ({"steps": 5, "path": "/nowhere/x.vds"}, "no directory /nowhere")],
)
def test_what_cannot_be_recorded_is_refused_at_once(options, reason):
    with pytest.raises((ValueError, FileNotFoundError), match=reason):
        velocirl.record_dataset(lambda _: 0, "Counter-v0", device="python", references={}, **options)


def test_only_the_last_episode_is_cut_off(monkeypatch):
    monkeypatch.setattr(record, "copies_for", lambda *_: 3)
    data = velocirl.record_dataset(lambda _: 1, "gym:CartPole-v1", steps=100)
    assert len(data) == 100
    assert data.terminations[data.starts[1:-1] - 1].all()
    assert data.lengths()[:-1].min() >= 8


def test_the_first_steps_are_whole_episodes_and_the_beginning_of_one():
    data = counter_steps(1, np.array([4]), 12, 100)
    for steps in range(1, 13):
        found = velocirl.Dataset(data.info, first_steps(data.columns, steps))
        found.validate()
        assert len(found) == steps
        assert found.lengths()[:-1].tolist() == [4] * ((steps - 1) // 4)
        np.testing.assert_array_equal(found.episode(-1).observations[-1][2], (steps - 1) % 4 + 1)
        assert found.terminations.tolist() == data.terminations[:steps].tolist()


def test_an_episode_without_an_end_is_cut_off_before_memory_is_full_and_goes_on(monkeypatch):
    monkeypatch.setattr(record, "ROUND_BYTES", 10 * 34)
    monkeypatch.setattr(record, "MOST_OPEN_BYTES", 20 * 34)
    endless = gymnasium.make("Pendulum-v1", max_episode_steps=10**6)
    data = velocirl.record_dataset(lambda _: np.zeros(1), lambda: endless, steps=100)
    assert len(data) == 100
    assert 3 <= data.episodes <= 5
    for k in range(data.episodes - 1):
        np.testing.assert_array_equal(data.episode(k).observations[-1], data.episode(k + 1).observations[0])
    assert data.truncations.sum() == data.episodes


def test_copies_of_wide_observations_are_as_many_as_memory_has_room_for(monkeypatch):
    asked = []
    monkeypatch.setattr(record, "copies_for", lambda steps, limit, most: asked.append(most) or 1)
    monkeypatch.setattr(record, "OPEN_BYTES", 2**20)
    velocirl.record_dataset(lambda _: 0, "CatchPixels-v0", steps=3, device="python", references={})
    assert asked == [2**20 // (1000 * (200 + 8 + 4 + 2))]  # a picture, an action, a reward and two flags
