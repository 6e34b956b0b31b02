"""Precision, compiling, accumulation, buffers and overlapping as candidates, and the table of advice."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box

from velocirl import DQN, PPO
from velocirl.bench.tuning.candidates import Candidate, candidates_for
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.hardware import ADVICE, Rig, advice_rows
from velocirl.bench.tuning.shapes import distance
from velocirl.bench.tuning.ways import WAYS, ways_of
from velocirl.training.settings.config import as_plain
from velocirl.training.source import Source

SMALL = Box(-1.0, 1.0, (4,), np.float32)


def agent(kind, device="cpu", *, native_network=True, native=True, source=None, **settings):
    config = replace(kind.Config(), device=device, threads=1, **settings)
    ready = object()  # copies that somebody made, of which collectors could not make others
    if source is None:
        source = SimpleNamespace(id="Copies", native=native or None, observation_space=SMALL, makers="", ready=ready)
    return SimpleNamespace(config=config, source=source, is_native=native_network)


def test_a_memory_on_a_gpu_is_tried_in_every_way():
    found = list(ways_of(agent(DQN, "cuda", batch_size=64, buffer_size=100_000, precision="tf32")))
    assert found == [
        {"precision": "tf32"}, {"precision": "bf16"}, {"precision": "fp16"}, {"compile": True},
        {"gradient_accumulation": 2, "batch_size": 32}, {"buffer_size": 25_000}, {"buffer_size": 50_000},
        {"buffer_size": 200_000}, {"overlap": True},
    ]  # fmt: skip


def test_accumulated_batches_come_to_as_many_transitions():
    config = agent(DQN, "cuda", batch_size=64, gradient_accumulation=2).config
    (changes,) = (one for one in ways_of(agent(DQN, "cuda", batch_size=64, gradient_accumulation=2)) if len(one) == 2)
    assert replace(config, **changes).effective_batch_size == config.effective_batch_size == 128


@pytest.mark.parametrize(("made", "names"), [
    (agent(DQN), {"buffer_size"}),
    (agent(DQN, native_network=False), {"precision", "gradient_accumulation", "buffer_size", "overlap"}),
    (agent(DQN, native_network=False, native=False), {"precision", "gradient_accumulation", "buffer_size"}),
    (agent(DQN, source=Source("gym:CartPole-v1")), {"buffer_size", "collectors"}),
    (agent(PPO), set()),
    (agent(PPO, native=False), {"overlap"}),
    (agent(PPO, "cuda"), {"precision", "compile", "overlap"}),
])  # fmt: skip
def test_only_what_such_an_agent_can_do_is_tried(made, names):
    tried = [set(one) for one in ways_of(made)]
    assert {one.setting for one in WAYS if any(one.setting in changes for changes in tried)} == names
    assert all("estimator" in one for one in tried if "overlap" in one and hasattr(made.config, "horizon"))


def test_collectors_have_as_many_copies_each_and_no_workers_beside_them():
    made = agent(DQN, source=Source("gym:CartPole-v1"), num_envs=6, batch_size=64, workers=None)
    tried = [one for one in ways_of(made) if "collectors" in one]
    assert tried == [{"collectors": count, "num_envs": copies} for count, copies in ((2, 6), (4, 8), (8, 8))]
    found = [one.settings for one in candidates_for(made, set(), 10**6, 2) if "collectors" in one.learning]
    assert {one["collectors"] for one in found} == {2, 4, 8}
    assert {one["workers"] for one in found} == {None, 0}
    assert not [
        one for one in ways_of(agent(DQN, source=made.source, num_envs=6, ring_size=512)) if "collectors" in one
    ]


def test_a_buffer_of_a_few_batches_is_not_tried():
    found = list(ways_of(agent(DQN, batch_size=64, buffer_size=2048)))
    assert found == [{"buffer_size": 1024}, {"buffer_size": 4096}]


def test_what_holds_on_one_device_is_not_tried_on_another(monkeypatch):
    monkeypatch.setattr("velocirl.bench.tuning.candidates.no_cuda", lambda: None)
    found = candidates_for(agent(DQN, "cuda", precision="tf32", workers=None), set(), 10**6, 1)
    assert {one.fixed["device"] for one in found} == {"cuda", "cpu"}
    bound = [one for one in found if {"precision", "compile", "overlap"} & set(one.learning)]
    assert bound
    assert {one.fixed["device"] for one in bound} == {"cuda"}


def test_yes_and_no_are_no_numbers():
    assert distance(DQN.Config(), {"overlap": True, "buffer_size": 200_000}) == 2.0


def measured(rate, **learning):
    return Measured(Candidate(learning), glance=rate)


def test_advice_is_shown_beside_what_came_of_it():
    reference = as_plain(DQN.Config(batch_size=64, buffer_size=100_000))
    rows = [
        measured(100.0), measured(80.0, batch_size=32), measured(150.0, batch_size=128), measured(90.0, batch_size=256),
        measured(130.0, overlap=True), Measured(Candidate({"buffer_size": 50_000})),
    ]  # fmt: skip
    table = advice_rows(Rig(2, 140 * 2**30), rows, reference)
    assert len(table) == len(ADVICE)
    assert table[0] == ("limited GPU memory", "140 GiB", "smaller batches", "no", "batch_size=32", "0.80")
    assert table[1][-3:] == ("no", "not tried", "-")  # which nobody came to measure
    assert table[3] == ("limited CPU cores", "2 cores", "two collectors", "yes", "not tried", "-")
    assert table[4][-4:] == ("batches of 2,000 experiences", "yes", "always 1,000 or more", "-")
    assert table[5] == ("high-end GPU", "140 GiB", "larger batches", "yes", "batch_size=128", "1.50")
    assert table[7][-3:] == ("yes", "overlap=True", "1.30")
    without = advice_rows(Rig(16, None), rows, reference)
    assert [row[3] for row in without] == ["no"] * len(ADVICE)
    assert without[0][1] == "no GPU"
