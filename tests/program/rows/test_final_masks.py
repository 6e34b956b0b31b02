"""What is legal where an episode was cut off: kept with its last observation, in memories and for values.

Gated allows one of three actions, which the count of steps and a parameter that each episode draws decide. Its episodes
are cut off after 4 steps, or terminate after 2 where they begin so.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import velocirl
from velocirl import DQN, PPO, Box, Discrete, Environment, QLearning, int32, record, uniform
from velocirl.algorithms.online.discrete_sac import DiscreteSAC
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED

LIMIT, SHORT, KINDS = 4, 2, 3


@record
class State:
    count: int32
    short: int32


@record
class Params:
    shift: int32 = 0


def reset(state, params, rng):
    state.count = 0
    state.short = int(velocirl.random.integer(rng, 0, 4) == 0)


def step(state, params, action, rng):
    state.count += 1
    return 1.0, (state.short != 0) & (state.count >= SHORT)


def observe(state, params, observation):
    observation[0] = state.count
    observation[1] = params.shift


def observe_row(state, params, y, row):
    row[0] = state.count
    row[1] = params.shift


def legal(state, params, mask):
    for k in range(KINDS):
        mask[k] = 1 if k == (state.count + params.shift) % KINDS else 0


def gated(**changes):
    given = {
        "state": State, "params": Params, "observation": Box(0, 255, (2,)), "action": Discrete(KINDS),
        "max_steps": LIMIT, "reset": reset, "step": step, "observe": observe, "legal": legal,
    }  # fmt: skip
    return Environment("Gated-v0", **{**given, **changes})


def pictured():
    return gated(observation=Box(0, 255, (1, 2), np.uint8), observe=None, observe_row=observe_row, stack=2)


class HostGated(gymnasium.Env):
    """The same in Python; its info says what is legal."""

    observation_space, action_space = Box(0, 255, (2,)), Discrete(KINDS)
    tells = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.shift = 0, int(self.np_random.integers(KINDS))
        self.short = self.np_random.random() < 0.25
        return self._seen(), self._info()

    def step(self, action):
        self.count += 1
        over = bool(self.short and self.count >= SHORT)
        return self._seen(), 1.0, over, self.count >= LIMIT, self._info()

    def _seen(self):
        return np.array([self.count, self.shift], np.float32)

    def _mask(self):
        return np.eye(KINDS, dtype=np.int8)[(self.count + self.shift) % KINDS]

    def _info(self):
        return {"action_mask": self._mask()} if self.tells else {}


class AskedGated(HostGated):
    """The same, which has to be asked."""

    tells = False

    def action_masks(self):
        assert not (self.short and self.count >= SHORT)  # nobody asks in a terminal state
        return self._mask()


def asked_vector():
    return SyncVectorEnv([AskedGated] * 4, autoreset_mode=AutoresetMode.DISABLED)


def vector(mode):
    return lambda: SyncVectorEnv([HostGated] * 4, autoreset_mode=mode)


PLACES = {
    "fleet": gated, "pictures": pictured, "gymnasium": lambda: HostGated, "asked": lambda: AskedGated,
    "same step": vector(AutoresetMode.SAME_STEP), "disabled": vector(AutoresetMode.DISABLED),
    "asked vector": asked_vector,
}  # fmt: skip
LEARNERS = {"python": {"device": "python"}, "threads": {"device": "cpu", "threads": 1}, "torch": {"network": "mlp(8)"}}
CASES = [(place, "python") for place in PLACES] + [("fleet", "threads"), ("gymnasium", "threads")]
SMALL = {"num_envs": 4, "seed": 5, "hidden": (8,), "layer_norm": False}


def agent_of(kind, place, learner, **config):
    environment = PLACES[place]()
    drawn = {"params": {"shift": uniform(0, KINDS - 1)}} if isinstance(environment, Environment) else {}
    return kind(environment, **{**SMALL, **LEARNERS[learner], **drawn, **config})


def following(count, shift):
    return (np.asarray(count, np.int64) + np.asarray(shift, np.int64)) % KINDS


@pytest.mark.parametrize(
    ("place", "learner", "kind"),
    [
        *((*case, DQN) for case in CASES),
        ("fleet", "python", DiscreteSAC),
        pytest.param("fleet", "torch", DQN, marks=pytest.mark.slow),
    ],
)
def test_memories_keep_what_is_legal_in_last_states(place, learner, kind):
    config = {"buffer_size": 400, "learning_starts": 400, "n_step": 3, "batch_size": 16,
              "scale_observations": False}  # fmt: skip
    agent = agent_of(kind, place, learner, **config).learn(200, progress=False)
    memory = agent.learner
    rows = np.asarray(memory.ring.rows)[:200]
    for ended, number in ((GOES_ON, 100), (TRUNCATED, 20), (TERMINATED, 2)):
        assert (rows["ended"] == ended).sum() >= number
    over = rows["ended"] == TERMINATED
    assert not rows["next_mask"][over].any()
    if place == "pictures":
        mask = rows["mask"].argmax(axis=1)
        np.testing.assert_array_equal(rows["next_mask"][~over].argmax(axis=1), (mask[~over] + 1) % KINDS)
        return
    after = following(*rows["next_observation"][:, :2].T)
    np.testing.assert_array_equal(rows["next_mask"][~over], np.eye(KINDS)[after[~over]])


class SilentAtTheEnd(HostGated):
    """The same, whose last infos say nothing."""

    def _info(self):
        return {} if self.count >= LIMIT else super()._info()


def test_what_nobody_says_forbids_nothing():
    config = {"buffer_size": 400, "learning_starts": 400, "batch_size": 16, "device": "python"}
    agent = DQN(lambda: SilentAtTheEnd(), **SMALL, **config).learn(200, progress=False)
    rows = agent.learner.ring.rows[:200]
    assert not rows["next_mask"][rows["ended"] == TRUNCATED].any()
    assert rows["next_mask"][rows["ended"] == GOES_ON].any(axis=1).all()


def masked_value(head, policy, row, mask):
    """Which action is legal, by the argument and by the row."""
    row.value = 0.0
    for k in range(head.outputs):
        row.value += (k + 1) * (mask[k] != 0) + 10.0 * (k + 1) * (row.mask[k] != 0)


class MaskedValue(PPO):
    """A toy, whose values say nothing but what is legal."""

    name = "toy-masked-value"
    state_value = masked_value


@pytest.mark.parametrize(("place", "learner"), [*CASES, pytest.param("fleet", "torch", marks=pytest.mark.slow)])
def test_values_of_last_states_see_what_is_legal_there(place, learner):
    agent = agent_of(MaskedValue, place, learner, horizon=23, minibatch_size=64)
    agent.prepare()
    collector = agent.learner.collector
    for _ in range(2):
        collector.collect()
        records = np.asarray(collector.recorded.records)
        cut = records["ended"][:, :-1] == TRUNCATED
        assert cut.sum() > 8
        first = records["mask"][:, :-1].argmax(axis=2)  # of the step that was the last
        expected = np.where(cut, 11.0 * (1 + (first + 1) % KINDS), 0.0)
        np.testing.assert_allclose(records["final_value"][:, :-1], expected)
        if place != "pictures":
            last = following(*records["observation"][:, -1, :2].T)
            np.testing.assert_allclose(records["value"][:, -1], 11.0 * (1 + last))


def test_a_bootstrapped_value_is_that_of_a_legal_action():
    """One state, never left, always cut off: the legal action is worth 1 / (1 - gamma), the other one never comes."""

    def only_the_first(state, params, mask):
        mask[0], mask[1], mask[2] = 1, 0, 0

    def stay(state, params, action, rng):
        return 1.0, False

    def nothing(state, params, observation):
        observation[0] = observation[1] = 1.0

    environment = gated(legal=only_the_first, step=stay, observe=nothing, max_steps=1)
    agent = DQN(
        environment, **SMALL, device="python", learning_starts=16, buffer_size=64, batch_size=8, gamma=0.5, n_step=1,
        train_every=4, gradient_steps=1, learning_rate=1e-9, double=False, dueling=False, target_every=10**6,
    )  # fmt: skip
    agent.prepare()
    agent.learn(24, progress=False)
    drawn = agent.learner.ring.drawn.rows
    assert (drawn["discount"] == 0.5).all()
    assert (drawn["next_action"] == 0).all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_fleet_tells_what_is_legal_in_last_states_in_every_mode(mode):
    fleet = velocirl.make_vec(
        gated(), 16, seed=0, device="python", params={"shift": uniform(0, 2)}, autoreset_mode=mode
    )
    fleet.reset()
    observations, infos = fleet.reset()
    terminated = truncated = np.zeros(16, np.bool_)
    for _ in range(LIMIT):
        if mode == AutoresetMode.DISABLED and terminated.any():
            _, infos = fleet.reset(options={"reset_mask": terminated})
        observations, _, terminated, truncated, infos = fleet.step(infos["action_mask"].argmax(axis=1))
    assert truncated.sum() > 6
    masks = infos["final_info"]["action_mask"]
    seen = infos["final_obs"] if mode == AutoresetMode.SAME_STEP else observations
    assert infos["final_info"]["_action_mask"].tolist() == (terminated | truncated).tolist()
    np.testing.assert_array_equal(masks[truncated], np.eye(KINDS)[following(*seen[truncated].T)])
    if mode != AutoresetMode.SAME_STEP:
        np.testing.assert_array_equal(infos["action_mask"][truncated], masks[truncated])


def test_one_environment_tells_what_is_legal_in_its_last_state():
    env = velocirl.make(gated(), device="python", shift=1)
    seed = 0
    truncated = False
    while not truncated:
        observation, infos = env.reset(seed=seed)
        terminated = False
        while not (terminated or truncated):
            observation, _, terminated, truncated, infos = env.step(int(infos["action_mask"].argmax()))
        seed += 1
    assert infos["action_mask"].tolist() == np.eye(KINDS)[following(*observation)].tolist()


def test_tables_learn_from_cut_episodes_with_drawn_parameters_too():
    """Worth 1 / (1 - gamma), where no episode terminates; what is drawn was not known at the end."""

    def stay(state, params, action, rng):
        state.count = 0
        return 1.0, False

    def number(state, params, observation):
        observation[0] = params.shift

    environment = gated(step=stay, observe=number, observation=Discrete(KINDS), max_steps=1)
    agent = QLearning(environment, num_envs=4, gamma=0.5, seed=1, params={"shift": uniform(0, 2)})
    agent.learn(20_000, progress=False)
    values = agent.q_values(np.arange(KINDS))
    np.testing.assert_allclose(np.diag(values), 2.0, atol=0.05)


@pytest.mark.slow
def test_collectors_send_what_is_legal_in_last_states():
    agent = DQN(HostGated, **SMALL, collectors=2, buffer_size=400, learning_starts=400, batch_size=16, n_step=1)
    try:
        agent.learn(200, progress=False)
        rows = agent.learner.ring.rows[:200]
    finally:
        agent.close() if hasattr(agent, "close") else None
    over = rows["ended"] == TERMINATED
    after = following(*rows["next_observation"].T)
    np.testing.assert_array_equal(rows["next_mask"][~over], np.eye(KINDS)[after[~over]])
