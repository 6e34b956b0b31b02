"""Stages over whole batches: the gradient that reaches a network, against torch, and what is counted on the way."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scalars import held

from velocirl.algorithms.online import ppo
from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.batch.epochs import begin_update
from velocirl.backends.batch.functions import (
    Sums,
    begin_batch,
    find_means,
    load_element,
    load_row,
    load_several,
    stop_for,
    tally,
)  # fmt: skip
from velocirl.backends.batch.minibatches import Extent, Minibatches
from velocirl.backends.batch.update import BatchProgram, Rows
from velocirl.backends.torch.device import TorchCPUDevice
from velocirl.buffers.records import TERMINATED, TRUNCATED, Act, narrow, rollout_type
from velocirl.buffers.returns import add_spread, gae, scale_rewards
from velocirl.engine.compiler.columns import Grouped, Indexed, Shared
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.launching import Work, by_row
from velocirl.networks.declared import Columns, Network
from velocirl.networks.heads import categorical, gaussian, multi_discrete
from velocirl.program.clock import COUNTS, FAULT, GATHERED, MINIBATCH, MINIBATCHES, NEXT_SCALE, NUMBERS, STOPPED, Clock
from velocirl.program.fields import fields_of
from velocirl.program.reducing import ALONE
from velocirl.program.stages import Step, Stop, every, forward
from velocirl.program.update import Resolver

HEADS = {
    "categorical": categorical(3),
    "multi-discrete masked": multi_discrete((2, 4), masked=True),
    "gaussian": gaussian(2),
}
CONFIG = {"clip": 0.2, "value_clip": 0.3, "dual_clip": 0.0, "value_coefficient": 0.7, "entropy_coefficient": 0.05}
COPIES, HORIZON, AGENTS = 16, 24, 2
ROWS = COPIES * HORIZON // 2  # of a minibatch of one agent


class Given:
    """A network whose outputs are given, and which keeps the gradient that reaches it."""

    state_size = 0

    def __init__(self, outputs):
        self.given, self.outputs = outputs, outputs.shape[-1]
        self.parameters = np.zeros((AGENTS, 1), np.float32)

    def learning(self, name):
        return nullcontext()

    def forward(self, inputs):
        assert inputs.shape == (AGENTS, ROWS, 1)
        return torch.as_tensor(self.given).reshape(AGENTS, ROWS, -1), None

    def backward(self, gradient, accumulate, name):
        self.gradient = np.asarray(gradient).copy().reshape(AGENTS, ROWS, -1)


def program_of(config, *, without=(Step,)):
    names = ["observation", "action", "reward", "ended", "mask", "final_value"]
    fields = [one.name for one in fields_of(ppo.PPO.Scratch, HEADS["categorical"], config)]
    resolver = Resolver(ppo.PPO, ppo.PPO.networks, [*names, *fields], list(ppo.PPO.reports), config)
    return resolver.program([stage for stage in ppo.PPO.update if not isinstance(stage, without)])


def fill_samples(samples, head, generator):
    """A rollout whose ratios and values lie on both sides of their clips."""
    size = samples.shape
    if head.action_dtype == "float32":
        samples["action"] = generator.normal(0, 1, (*size, head.action_size))
    else:
        first = 0
        samples["mask"] = generator.integers(0, 2, samples["mask"].shape)
        for part, count in enumerate(head.counts):
            samples["action"][..., part] = generator.integers(0, count, size)
            if head.masked:
                chosen = first + samples["action"][..., part : part + 1].astype(int)
                np.put_along_axis(samples["mask"], chosen, 1, -1)
            first += count
    samples["log_probability"] = generator.normal(-2 * head.action_size, 0.5, size)
    for name in ("value", "target", "advantage"):
        samples[name] = generator.normal(0, 1, size)


def torch_loss(head, outputs, samples, advantages):
    """The mean loss of a minibatch, written out in torch, and the smoothed divergence of each row."""
    policy, value = outputs[:, :-1], outputs[:, -1]
    old = {name: torch.tensor(samples[name].astype(np.float64)) for name in ("log_probability", "value", "target")}
    if head.action_dtype == "float32":
        size = head.action_size
        normal = torch.distributions.Normal(policy[:, :size], held(policy[:, size:]).exp())
        log_probability = normal.log_prob(torch.tensor(samples["action"].astype(np.float64))).sum(1)
        entropy = normal.entropy().sum(1)
    else:
        actions = torch.tensor(samples["action"].astype(np.int64))
        logits = policy
        if head.masked:
            logits = policy.masked_fill(torch.tensor(samples["mask"]) == 0, -1e30)
        parts = [torch.distributions.Categorical(logits=one) for one in logits.split(head.counts, 1)]
        log_probability = sum(part.log_prob(actions[:, k]) for k, part in enumerate(parts))
        entropy = sum(-(part.probs * part.logits).sum(1) for part in parts)
    clip, value_clip = CONFIG["clip"], CONFIG["value_clip"]
    log_ratio = log_probability - old["log_probability"]
    ratio = log_ratio.exp()
    kept = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    near = old["value"] + (value - old["value"]).clamp(-value_clip, value_clip)
    error = torch.maximum((value - old["target"]) ** 2, (near - old["target"]) ** 2) / 2
    loss = CONFIG["value_coefficient"] * error.mean() - CONFIG["entropy_coefficient"] * entropy.mean() - kept.mean()
    return loss, (ratio - 1 - log_ratio).detach().numpy()


class Update:
    """One minibatch of two agents side by side, the second with a loss scale of 256."""

    def __init__(self, device, head, normalise, **given):
        generator, config = np.random.default_rng(4), ppo.PPO.Config(**CONFIG, normalise_advantages=normalise)
        act = Act(head.action_size, head.action_dtype, head.outputs if head.masked else 0)
        fields = fields_of(ppo.PPO.Scratch, head, config)
        self.records = device.records((HORIZON + 1, AGENTS * COPIES), rollout_type(1, act, fields, ("value",)))
        fill_samples(self.records[:HORIZON], head, generator)
        for name, value in given.items():
            self.records[name] = value
        self.outputs = generator.normal(0, 0.7, (AGENTS * ROWS, head.outputs + 1)).astype(np.float32)
        self.clock = Clock(
            device.zeros(AGENTS, COUNTS, dtype=np.int64), device.zeros(AGENTS, NUMBERS, dtype=np.float64)
        )
        device.store(self.clock.numbers[:, NEXT_SCALE], np.array([1.0, 256.0]))
        extent = Extent(AGENTS, COPIES, HORIZON, ROWS, COPIES * HORIZON, 1)
        self.drawing = Minibatches(device, extent, self.clock, [1, 2])
        self.network = Given(self.outputs)
        settings = np.zeros(1, [(name, np.float32) for name in (*CONFIG, "normalise_advantages", "weight_limit")])
        settings[0] = *CONFIG.values(), normalise, np.inf
        task = SimpleNamespace(config=config, head=head, settings=settings, numbers=[], reducer=ALONE)
        networks = SimpleNamespace(
            device=device, agents=AGENTS, clock=self.clock, task=task, networks={"policy": self.network}, numbers=None
        )
        flat, index = narrow(self.records).reshape(-1), self.drawing.index
        observations = self.records.reshape(-1)["observation"]
        streams = Indexed(device.put(np.zeros((1, 2), np.uint64)), index)
        rows = Rows(
            Indexed(flat, index), {"observation": Indexed(observations, index)}, {"observation": 1}, streams,
            (self.drawing.drawn,),
        )  # fmt: skip
        self.program = BatchProgram(program_of(config), networks, rows, ROWS)
        device.store(self.drawing._order, np.stack([generator.permutation(COPIES * HORIZON) for _ in range(AGENTS)]))
        self.drawing.rewind(0)
        self.program.begin()
        self.program.run()
        self.program.run()  # the second minibatch

    def drawn(self, agent):
        """The samples of an agent's rows."""
        places = np.asarray(self.drawing.index).reshape(AGENTS, ROWS)[agent]
        return self.records.reshape(-1)[places]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_the_loss_of_a_minibatch(name, normalise):
    """The gradient of the mean loss over the rows that were drawn, times the loss scale."""
    head = HEADS[name]
    update = Update(PythonDevice(), head, normalise)
    seen = []
    for s in range(AGENTS):
        samples = update.drawn(s)
        outputs = torch.tensor(update.outputs.reshape(AGENTS, ROWS, -1)[s].astype(np.float64), requires_grad=True)
        advantages = torch.tensor(samples["advantage"].astype(np.float64))
        if normalise:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        loss, divergence = torch_loss(head, outputs, samples, advantages)
        loss.backward()
        expected = outputs.grad.numpy() * (1, 256)[s]
        found = update.network.gradient[s]
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()
        call = next(one for one in update.program.program.calls if "approx_kl" in one.metrics)
        added = update.program._added[id(call)].reshape(AGENTS, ROWS, -1)[s, :, call.metrics.index("approx_kl")]
        np.testing.assert_allclose(added, divergence, rtol=1e-4, atol=1e-4)
        seen.append(set(np.array(update.drawing.index).reshape(AGENTS, ROWS)[s].tolist()))
    assert all(len(one) == ROWS for one in seen)
    assert not seen[0] & seen[1]


def test_losses_are_the_same_compiled():
    plain, compiled = (Update(device, HEADS["categorical"], True) for device in (PythonDevice(), TorchCPUDevice(1)))
    assert np.abs(plain.network.gradient).max() > 1e-3
    np.testing.assert_allclose(compiled.network.gradient[0], plain.network.gradient[0], atol=1e-6)
    np.testing.assert_allclose(compiled.network.gradient[1], plain.network.gradient[1], atol=256e-6)


@pytest.mark.parametrize("device", [PythonDevice, lambda: TorchCPUDevice(1)], ids=["python", "torch"])
@pytest.mark.parametrize("advantage", [0.18955909, -1.1003743, 12345.678])
def test_advantages_that_are_all_alike_count_for_nothing(device, advantage):
    """Their deviation is 0 but for rounding, which must not be divided by."""
    alike = Update(device(), HEADS["categorical"], True, advantage=advantage)
    none = Update(device(), HEADS["categorical"], False, advantage=0.0)
    np.testing.assert_allclose(alike.network.gradient, none.network.gradient, atol=1e-6)


def sums_of(agents, slots, metrics):
    return Sums(
        sums=np.zeros((agents, slots)),
        totals=np.zeros((agents, slots)),
        seen=np.zeros((agents, 1), np.int64),
        means=np.zeros((agents, metrics + 1)),
        single=np.zeros((agents, metrics + 1), np.float32),
        metric=np.arange(slots),
    )


def test_what_is_counted_and_where_an_update_stops():
    """Two agents, of which the second moves too far; what comes after a stop is not counted."""
    clock = Clock(np.zeros((2, COUNTS), np.int64), np.zeros((2, NUMBERS)))
    sums, target = sums_of(2, 2, 2), 0.01
    clock.counts[:, MINIBATCH] = -1
    sums.sums[:] = [[3, ROWS * 0.0149], [5, ROWS * 0.0151]]
    settings = with_attributes(np.array([(target,)], [("target_kl", np.float64)]))
    stop = stop_for(ppo.moved_too_far)
    means = with_attributes(sums.means.view([(name, np.float64) for name in ("loss", "approx_kl", "rows")])[..., 0])
    for update in range(2):
        for s in range(2):
            begin_batch(s, s, update, sums, ROWS, clock, 1)
            tally(s, s, 0, sums, 0, 2, 0, ROWS, clock)
            find_means(s, s, 0, sums, 0, 2, ROWS)
            stop(s, s, 0, None, clock, means, Shared(settings))
    assert clock.counts[:, STOPPED].tolist() == [0, 1]  # at one and a half times the target
    assert clock.counts[:, MINIBATCHES].tolist() == [2, 1]
    assert clock.counts[:, GATHERED].tolist() == [2, 2]
    assert clock.counts[:, MINIBATCH].tolist() == [1, 1]
    assert sums.seen[:, 0].tolist() == [2 * ROWS, ROWS]
    np.testing.assert_allclose(sums.totals, sums.sums * [[2], [1]])
    np.testing.assert_allclose(sums.single[:, :2], sums.sums / ROWS)
    assert sums.single[:, 2].tolist() == [ROWS, ROWS]
    clock.counts[0, FAULT] = 1
    for s in range(2):
        begin_update(s, s, 0, clock)
    for name in (MINIBATCHES, GATHERED, STOPPED, FAULT):
        assert not clock.counts[:, name].any()
    begin_batch(0, 0, 0, sums, ROWS, clock, 0)  # a pass that only looks, before an epoch
    assert clock.counts[0, [MINIBATCHES, GATHERED]].tolist() == [0, 1]


@pytest.mark.parametrize(("target", "stops"), [(0.0, 0), (0.01, 1)])
def test_without_a_target_nothing_stops_an_update(target, stops):
    program = program_of(ppo.PPO.Config(target_kl=target), without=())
    stages = [getattr(one, "stage", None) for one in program.steps]
    assert sum(isinstance(one, Stop) for one in stages) == stops


class Seen:
    """A network that keeps what it reads."""

    state_size, outputs, parameters, learning = 0, 1, np.zeros(1, np.float32), None

    def __init__(self):
        self.read = []

    def forward(self, inputs):
        self.read.append(inputs[:, 0].tolist())
        return inputs[:, :1], None


@pytest.mark.parametrize("stages", [
    (forward("values", "next_observation"), forward("values", "observation"), forward("values", "next_observation")),
    (forward("values", "observation"), every("period", forward("values", "next_observation"))),
    (every("period", forward("values", "next_observation"), forward("values", "observation")),),
], ids=["in turns", "now and then", "only then"])  # fmt: skip
def test_passes_of_one_network_read_what_each_of_them_says(stages):
    """Whatever another of the same name has read before it, in this update or in the last."""
    values = {"observation": [1.0, 2.0], "next_observation": [3.0, 4.0]}
    declared = {"values": Network("observation", gives=lambda agent: [[Columns(1)]])}
    config = SimpleNamespace(period=2)
    program = Resolver(ppo.PPO, declared, list(values), [], config).program(stages)
    clock = Clock(np.zeros((1, COUNTS), np.int64), np.zeros((1, NUMBERS)))
    network, device = Seen(), PythonDevice()
    task = SimpleNamespace(config=config, numbers=[])
    networks = SimpleNamespace(device=device, agents=1, clock=clock, task=task, networks={"values": network})
    fields = {name: np.array(one, np.float32)[:, None] for name, one in values.items()}
    batch = BatchProgram(program, networks, Rows(None, fields, dict.fromkeys(values, 1), None), 2)
    for due in (frozenset({"period"}), frozenset(), frozenset({"period"})):
        network.read.clear()
        batch.run(due)
        passes = [one for part in program.passes if part.every is None or part.every in due for one in part.stages]
        assert network.read == [values[one.reads[0]] for one in passes]


def test_fields_are_copied_to_where_a_network_reads_them():
    """Row by row, number by number, and several rows for each sample, of a field that has as many or one for all."""
    source, index = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([2, 0, 3], np.int32)
    by_rows, by_numbers, several = (np.full(shape, -1, np.float32) for shape in ((3, 5), (3, 5), (3, 2, 5)))
    for i in range(3):
        load_row(i, i, 0, Indexed(source, index), by_rows, 1)
        load_several(i, i, 0, Indexed(source[:, None, :], index), several, 0)
        load_several(i, i, 0, Indexed(np.stack([source, -source], 1)[:, :, :2], index), several, 3)
    for n in range(9):
        load_element(n, n, 0, Indexed(source, index), by_numbers, 1, 3)
    for found in (by_rows, by_numbers):
        np.testing.assert_array_equal(found[:, 1:4], source[index])
        assert np.all(found[:, [0, 4]] == -1)
    np.testing.assert_array_equal(several[..., :3], np.repeat(source[index][:, None], 2, axis=1))
    np.testing.assert_array_equal(several[..., 3:], np.stack([source[index], -source[index]], 1)[:, :, :2])


def test_estimates_of_each_agent():
    """Every copy's column by itself, with the reward scale of its agent; beside it the sums of the critic's errors."""
    generator, names = np.random.default_rng(0), ("reward", "value", "final_value", "advantage", "target")
    rows = np.zeros((6, 7), [*((name, np.float32) for name in names), ("ended", np.int8)])
    for name in names[:3]:
        rows[name] = generator.normal(0, 1, rows.shape)
    rows["ended"][[0, 3], [2, 4]], rows["ended"][1, 1] = TRUNCATED, TERMINATED
    rows["final_value"][rows["ended"] != TRUNCATED] = 0
    before, spread = rows.copy(), np.full((6, 4), 7.0)
    numbers = [("reward_scale", np.float32), ("reward_limit", np.float32)]
    scale = np.array([(1.0, np.inf), (0.5, 0.3)], numbers)
    settings = np.array([(0.9, 0.8)], [("gamma", np.float32), ("gae_lambda", np.float32)])
    columns = [rows[name] for name in ("reward", "value", "final_value", "ended", "advantage", "target")]
    works = [
        Work(by_row(scale_rewards), (rows["reward"], Grouped(scale, 3))),
        Work(by_row(gae), (*columns, Shared(settings))),
        Work(by_row(add_spread), (rows["value"], rows["target"], spread)),
    ]
    PythonDevice().launch(works, 6)(0)
    for i, column in enumerate(rows):
        factor, limit = (float(number) for number in scale[i // 3])
        advantage, following = 0.0, float(column["value"][6])
        for t in range(5, -1, -1):
            sample = column[t]
            if sample["ended"]:
                advantage, following = 0.0, float(sample["final_value"])
            reward = min(max(float(before["reward"][i, t]) * factor, -limit), limit)
            advantage = reward + 0.9 * following - float(sample["value"]) + 0.9 * 0.8 * advantage
            following = float(sample["value"])
            assert sample["advantage"] == pytest.approx(advantage, abs=1e-5)
            assert sample["target"] == pytest.approx(advantage + following, abs=1e-5)
        sums = [(column[name][:6].astype(float) ** power).sum() for name in ("target", "advantage") for power in (1, 2)]
        np.testing.assert_allclose(spread[i], sums, rtol=1e-6)
