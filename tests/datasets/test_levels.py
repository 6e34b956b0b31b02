"""Levels of data sets: which policies they are made of, and in which parts."""

import numpy as np
import pytest

import velocirl
from velocirl.datasets import levels, references
from velocirl.datasets.levels import KeepSnapshots, create_dataset, halfway
from velocirl.training.source import Source


class Acting:
    """Stands in for an agent: what it does is a number that training changes."""

    def __init__(self):
        self.steps, self.action = 0, 0.0

    def policy_arrays(self):
        return {"action": np.array(self.action)}

    def load_policy_arrays(self, arrays):
        self.action = float(arrays["action"])

    def predict(self, observation, **_):
        return np.full((len(observation), 1), self.action, np.float32), None


@pytest.fixture(autouse=True)
def _few_episodes(monkeypatch):
    def returns_of(model, source, seed, episodes, *_):
        return np.full(episodes, {"Random": -9.0}.get(type(model).__name__, 1.0))

    monkeypatch.setattr(references, "returns_of", returns_of)


def test_snapshots_act_as_the_agent_did_at_their_time():
    agent, kept = Acting(), KeepSnapshots(total=100, count=4)
    kept.start(agent)
    for _ in range(50):
        agent.steps += 2
        agent.action = agent.steps / 100
        kept.step(agent)
    seen = np.zeros((2, 3))
    assert [one.predict(seen)[0][0, 0] for one in kept.kept] == pytest.approx([0.0, 0.26, 0.5, 0.76, 1.0])
    first, last = kept.kept[0], kept.kept[-1]
    assert [one.predict(seen)[0][0, 0] for one in (last, first, first, last)] == [1.0, 0.0, 0.0, 1.0]


def test_medium_is_the_first_that_has_come_half_the_way():
    assert halfway([-10.0, -4.0, 1.0, 8.0, 10.0], random_return=-10.0) == 2
    assert halfway([-10.0, -9.0, 10.0], random_return=-10.0) == 1  # nothing between: the nearest to half the way


def test_mixed_data_are_random_medium_and_expert_in_equal_parts():
    options = {"device": "python", "expert": lambda _: np.array([2.0]), "medium": lambda _: np.array([1.0])}
    data = create_dataset("mixed", "Pendulum-v1", steps=60, **options)
    assert (len(data), data.info.level) == (60, "mixed")
    assert data.info.references == {"random": -9.0, "expert": 1.0}
    assert (data.actions[20:40] == 1.0).all()
    assert (data.actions[40:] == 2.0).all()
    assert len(np.unique(data.actions[:20])) == 20
    alone = create_dataset("expert", "Pendulum-v1", steps=10, **options)
    assert (alone.actions == 2.0).all()


def test_the_operator_is_the_controller_of_the_plant():
    data = create_dataset("operator", "ChemicalReactor-v0", steps=20, device="python")
    assert data.info.policy == "PID"
    assert set(data.info.references) == {"random", "operator"}
    with pytest.raises(ValueError, match="comes with no controller"):
        create_dataset("operator", "Pendulum-v1", steps=20)


def test_levels_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match="the levels of data sets are random, operator"):
        create_dataset("best", "Pendulum-v1", steps=20)
    with pytest.raises(ValueError, match="steps in Python: use record_dataset"):
        create_dataset("random", "gym:CartPole-v1", steps=20)


def test_references_are_of_as_many_episodes_as_their_interval_needs(monkeypatch):
    asked = []

    def returns_of(model, source, seed, episodes, *_):
        name, generator = type(model).__name__, np.random.default_rng(seed)
        asked.append((name, episodes))
        return generator.normal(0.0, 10.0, episodes) if name == "Random" else np.full(episodes, 100.0)

    monkeypatch.setattr(references, "returns_of", returns_of)
    found = references.measure_references(Source("ChemicalReactor-v0"), None, seed=0)
    # The half-width of n normal returns is about 1.96 * 10 / sqrt(n): below 1 from 400 on.
    assert asked == [("Random", 100), ("PID", 100), ("Random", 100), ("Random", 200)]
    assert (len(found["random"].returns), len(found["operator"].returns)) == (400, 100)
    assert found["random"].reach < 1.0
    assert len(np.unique(found["random"].returns)) == 400  # other episodes in each round

    def noisy(model, source, seed, episodes, *_):
        return np.random.default_rng(seed).normal(0.0, 1.0, episodes)

    monkeypatch.setattr(references, "returns_of", noisy)
    found = references.measure_references(Source("ChemicalReactor-v0"), None, seed=0)
    assert len(found["random"].returns) == references.MOST_EPISODES == 1600


def test_a_level_is_trained_measured_and_recorded_in_its_scenario(monkeypatch):
    operated = []

    def train(*_, **more):
        operated.append(more)
        raise RuntimeError("trained")

    monkeypatch.setattr(levels, "train_levels", train)
    with pytest.raises(RuntimeError, match="trained"):
        create_dataset("medium", "ChemicalReactor-v0", steps=10, scenario="disturbed", params={"time_step": 2.0})
    assert operated == [{"scenario": "disturbed", "params": {"time_step": 2.0}}]
    options = {"device": "python", "steps": 6, "scenario": "disturbed", "expert": lambda _: np.array([0.0] * 3)}
    for level in ("random", "operator", "expert"):
        info = create_dataset(level, "ChemicalReactor-v0", **options).info
        assert (info.scenario, info.time_step) == ("disturbed", 5.0)
        assert info.params["sensor_noise"] > 0.0
    with pytest.raises(ValueError, match="has no scenario 'windy'"):
        create_dataset("random", "ChemicalReactor-v0", steps=6, scenario="windy")


@pytest.mark.slow
def test_one_training_gives_medium_expert_and_replay(tmp_path, monkeypatch):
    monkeypatch.undo()
    options = {"steps": 20_000, "training_steps": 100_000, "seed": 1}
    scores = {}
    for level in ("random", "medium", "expert", "replay"):
        data = velocirl.create_dataset(level, "Pendulum-v1", path=tmp_path / f"{level}.vds", **options)
        expert = data.info.references.get("expert", scores.get("expert"))
        scores[level] = data.returns().mean()
        if level != "random":
            assert data.info.references["random"] < expert
    assert scores["random"] < scores["medium"] < scores["expert"]
    assert scores["random"] < scores["replay"] < scores["expert"]
    assert levels.SNAPSHOTS == 20
