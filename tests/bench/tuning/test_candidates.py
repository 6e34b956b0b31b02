import dataclasses

import pytest

from velocirl import DQN, PPO
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.bench.tuning import candidates as module
from velocirl.bench.tuning import shapes as shapes_module
from velocirl.bench.tuning.candidates import Candidate, candidates_for


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    for one in (module, shapes_module):
        monkeypatch.setattr(one, "no_cuda", lambda: "there is no CUDA device")


@pytest.fixture
def gpu(monkeypatch):
    for one in (module, shapes_module):
        monkeypatch.setattr(one, "no_cuda", lambda: None)


def names(found):
    return [one.name for one in found]


def test_the_reference_comes_first_then_other_ways_to_run_it_then_what_is_near():
    found = candidates_for(PPO("CartPole-v1", seed=0, threads=4, device="cpu"), {"device"}, 100_000, 4)
    assert names(found)[:3] == ["reference", "threads=1", "threads=2"]
    assert found[0].is_reference
    assert [one.is_neutral for one in found[:4]] == [True, True, True, False]
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    assert len(set(names(found))) == len(found)
    shapes = {one.shape for one in found}
    assert len(found) == 3 * len(shapes)  # each shape with each number of threads


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_an_agent_with_a_candidates_settings_is_that_candidate(algorithm):
    reference = algorithm("CartPole-v1", seed=0)
    for one in candidates_for(reference, (), 100_000, 2):
        made = algorithm("CartPole-v1", seed=0, **one.settings).config
        changed = {**one.learning, **one.running, "shares": made.shares}  # which follow from the size of an update
        assert made == dataclasses.replace(reference.config, **changed)


def test_what_is_fixed_is_never_changed():
    agent = PPO("CartPole-v1", seed=0, num_envs=8, threads=1)
    found = candidates_for(agent, {"num_envs", "threads", "device"}, 100_000, 4)
    assert found[0].is_reference
    assert {name for one in found for name in {**one.learning, **one.running}} == {"minibatch_size"}


def test_without_steps_only_what_cannot_change_learning():
    found = candidates_for(PPO("CartPole-v1", seed=0, threads=2), (), None, 2)
    assert names(found) == ["reference", "threads=1"]


def test_no_thread_is_without_a_copy():
    found = candidates_for(PPO("CartPole-v1", seed=0, num_envs=4, threads=1), (), 100_000, 8)
    assert max(one.settings["threads"] for one in found if one.is_neutral) == 4
    assert all(one.settings["threads"] <= one.learning.get("num_envs", 4) for one in found)


def test_a_gpu_is_one_more_place_with_any_number_of_threads(gpu):
    found = candidates_for(PPO("CartPole-v1", seed=0, threads=2, device="cpu"), (), None, 2)
    assert names(found) == ["reference", "threads=1", "device=cuda"]


@pytest.mark.parametrize("fixed", ["device", "precision", "compile"])
def test_what_holds_on_one_device_keeps_it(gpu, fixed):
    found = candidates_for(PPO("CartPole-v1", seed=0, threads=2, device="cpu"), {fixed}, None, 2)
    assert names(found) == ["reference", "threads=1"]


def test_an_environment_in_python_may_have_processes():
    found = candidates_for(PPO("gym:CartPole-v1", seed=0, threads=1), {"threads"}, None, 2)
    assert names(found) == ["reference", "workers=0", "workers=2"]
    assert candidates_for(PPO("gym:CartPole-v1", seed=0, threads=1), {"threads", "workers"}, None, 2) == found[:1]


def test_where_a_table_is_learnt_the_runtime_is_a_part_of_learning(gpu):
    found = candidates_for(QLearning("GridWorld-v0", seed=0), (), 10**6, 2)
    assert [one.name for one in found if one.is_neutral] == ["reference"]
    assert "runtime=threads workers=2" in names(found)
    assert "num_envs=65536 runtime=cuda" in names(found)


def test_a_name_is_what_one_would_type():
    one = Candidate({"num_envs": 8}, {"workers": None}, {"device": "cpu"})
    assert (one.name, one.shape) == ("num_envs=8 workers=none", "num_envs=8")
    assert one.settings == {"device": "cpu", "num_envs": 8, "workers": None}
