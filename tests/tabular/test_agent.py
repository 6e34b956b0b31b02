"""What an agent with a table does for its user: learn, act, be saved, refuse what is wrong."""

import hashlib

import gymnasium
import numpy as np
import pytest
import tic_tac_toe_oracle as oracle

import velocirl
from velocirl import DQN, QLearning
from velocirl.runs.state_file import DamagedStateError, read_state, write_state
from velocirl.scale.launching import LaunchError
from velocirl.tabular.config import chosen_runtime
from velocirl.training.agent import Agent

GAME = "TicTacToe-v1"
TRAINED = 200_000
# In place of the environment's preset, which may change.
OWN = {
    "gamma": 1.0,
    "learning_rate": 0.1,
    "learning_rate_schedule": "constant",
    "exploration_rate": 1.0,
    "exploration_schedule": "linear(end=0.05)",
}


@pytest.fixture(scope="module")
def trained():
    """An agent that is looked at and not changed."""
    return QLearning(GAME, **OWN, seed=3).learn(TRAINED)


@pytest.fixture(scope="module")
def sparse():
    """The same, in a table of the states that it met."""
    return QLearning(GAME, **OWN, seed=3, storage="sparse").learn(TRAINED)


def digest(agent):
    return hashlib.sha256(agent.parameters.tobytes()).hexdigest()


def boards(codes):
    return np.array([oracle.cells_of(code) for code in codes])


def greedy_policy(agent):
    """The best legal move of every position, (19683,)."""
    everything = boards(range(oracle.CODES))
    return agent.predict(everything, deterministic=True, action_masks=everything == 0)[0]


def stop_at(steps):
    return lambda agent: agent.steps < steps


def assert_same_state(found, expected):
    assert found.document == expected.document
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        for field in array.dtype.names or (...,):  # not what lies between the fields of records
            assert found.arrays[name][field].tobytes() == array[field].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({}, 0.99),
        ({"storage": "sparse"}, 0.99),
        pytest.param({"dtype": "float64", "n_step": 2}, 0.98, marks=pytest.mark.slow),
    ],
    ids=["dense", "sparse", "two steps in double precision"],
)
def test_tic_tac_toe_is_learnt(settings, share):
    """In 4M steps. The exact optimum is 0.960; at most 1% of games are lost. Returns of two steps are not corrected."""
    agent = QLearning(GAME, **{**OWN, "seed": 0, **settings}).learn(4_000_000)
    model, _, plan = oracle.exact()
    best = model.start_value(plan.values)
    policy = greedy_policy(agent)
    assert best == pytest.approx(0.960, abs=1e-3)
    assert oracle.value_of_policy(policy) >= share * best
    wins, draws, losses = oracle.outcome_of_policy(policy)
    assert losses <= 0.01
    assert wins + draws + losses == pytest.approx(1)
    played = velocirl.evaluate(agent, episodes=2000, seed=1)
    assert played.mean_return == pytest.approx(oracle.value_of_policy(policy), abs=0.02)


def test_values_are_those_of_the_game():
    """With a falling rate, the values of the first moves are what exact planning says."""
    agent = QLearning(
        GAME,
        seed=1,
        gamma=1.0,
        learning_rate=0.5,
        learning_rate_schedule="exponential(end=0.005)",
        exploration_rate=1.0,
        exploration_schedule="constant",
    )
    agent.learn(12_000_000)
    _, keys, plan = oracle.exact()
    for code in (0, oracle.code_of((2, *8 * (0,))), oracle.code_of((*4 * (0,), 2, *4 * (0,)))):
        expected = plan.action_values[int(np.flatnonzero(keys == code)[0])]
        legal = np.isfinite(expected)
        np.testing.assert_allclose(agent.q_values(boards([code])[0])[legal], expected[legal], atol=0.04)


def test_metrics_of_an_iteration():
    rows = []
    agent = QLearning(GAME, **{**OWN, "seed": 0, "learning_rate_schedule": "linear"})
    agent.learn(65_536, lambda agent: rows.append(dict(agent.metrics)))
    assert set(rows[0]) == {
        "time/total_timesteps", "time/iterations", "time/time_elapsed", "time/fps", "rollout/ep_rew_mean",
        "rollout/ep_len_mean", "rollout/exploration_rate", "train/learning_rate", "train/n_updates", "train/states",
        "train/td_error", "time/rollout_share", "time/rollout/policy_share", "time/rollout/environment_share",
        "time/update_share",
    }  # fmt: skip
    assert [row["time/total_timesteps"] for row in rows] == [16_384, 32_768, 49_152, 65_536]
    assert [row["train/n_updates"] for row in rows] == [16_384, 32_768, 49_152, 65_536]
    assert [row["rollout/exploration_rate"] for row in rows] == pytest.approx([0.7625, 0.525, 0.2875, 0.05])
    assert [row["train/learning_rate"] for row in rows] == pytest.approx([0.075, 0.05, 0.025, 0.0], abs=1e-9)
    assert {row["train/states"] for row in rows} == {3**9}
    assert rows[-1]["rollout/ep_rew_mean"] == np.mean(agent.recent.returns) > 0.3
    assert 3 <= rows[-1]["rollout/ep_len_mean"] <= 5
    assert all(0 < row["train/td_error"] < 1 for row in rows)


def test_an_iteration_is_a_share_of_the_training():
    steps = []
    QLearning(GAME, seed=0).learn(10_000_000, lambda agent: steps.append(agent.steps))
    assert len(steps) == 100
    agent = QLearning(GAME, seed=0, num_envs=100).learn(1)
    assert agent.steps == 100
    assert agent.finished


def test_states_of_a_sparse_table_are_those_that_were_met(sparse):
    assert sparse.metrics["train/states"] == len(sparse.table) < 3**9 / 3
    keys = sparse.table.keys
    assert len(np.unique(keys)) == len(keys)
    _, reachable, _ = oracle.exact()
    assert set(keys.tolist()) <= set(reachable.tolist())


def test_callbacks_stop_and_evaluate():
    evaluating = velocirl.Evaluate(every=100_000, episodes=100)
    agent = QLearning(GAME, **OWN, seed=0)
    agent.learn(2_000_000, [evaluating, velocirl.StopOnReward(0.8)])
    assert agent.steps < 2_000_000
    assert "0.8" in agent.stopping
    assert evaluating.best > 0.5


def test_looking_does_not_change_training():
    def look(agent):
        agent.predict(agent.source.observation_space.sample())
        velocirl.evaluate(agent, episodes=2, seed=agent.steps, deterministic=False)

    for storage in ("dense", "sparse"):
        settings = {"seed": 0, "storage": storage}
        assert digest(QLearning(GAME, **settings).learn(65_536, look)) == digest(
            QLearning(GAME, **settings).learn(65_536)
        )


def test_the_seed_decides_all_in_other_processes_too(run_script, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import hashlib, velocirl\n"
        f"agent = velocirl.QLearning({GAME!r}, **{OWN!r}, seed=3).learn({TRAINED})\n"
        "print(hashlib.sha256(agent.parameters.tobytes()).hexdigest())\n"
    )
    expected = digest(QLearning(GAME, **OWN, seed=3).learn(TRAINED))
    assert run_script(script).strip() == expected
    assert digest(QLearning(GAME, **OWN, seed=4).learn(TRAINED)) != expected


def test_a_seed_is_drawn_where_none_is_given():
    seeds = {QLearning(GAME).config.seed for _ in range(3)}
    assert len(seeds) == 3


def test_a_table_for_what_a_board_is_worth(trained):
    board = boards([0])[0]
    values = trained.q_values(board)
    assert values.shape == (9,)
    np.testing.assert_array_equal(values, trained.parameters[0])
    several = trained.q_values(boards([0, 1, 7]))
    assert several.shape == (3, 9)
    np.testing.assert_array_equal(several, trained.parameters[[0, 1, 7]])


def test_one_action_or_several(trained):
    board = boards([0])[0]
    action, state = trained.predict(board, deterministic=True)
    assert state is None
    assert action.shape == ()
    assert trained.source.action_space.contains(action)
    assert action == trained.q_values(board).argmax()
    several = boards([0, 1, 2, 0])
    actions, _ = trained.predict(several, deterministic=True)
    np.testing.assert_array_equal(actions, trained.q_values(several).argmax(axis=1))
    assert actions.dtype == trained.source.action_space.dtype
    assert trained.predict(several[:2])[0].shape == (2,)
    assert trained.predict(several)[0].shape == (4,)  # more than before
    hidden = "anything"
    assert trained.predict(board, state=hidden)[1] is hidden


@pytest.mark.parametrize("deterministic", [True, False])
def test_masks_are_kept_to(trained, deterministic):
    seen = np.repeat(boards([0]), 900, axis=0)
    masks = np.zeros((900, 9), np.int8)
    allowed = np.arange(900) % 9
    masks[np.arange(900), allowed] = 1
    actions, _ = trained.predict(seen, deterministic=deterministic, action_masks=masks)
    np.testing.assert_array_equal(actions, allowed)
    single, _ = trained.predict(seen[5], deterministic=deterministic, action_masks=masks[5])
    assert single == 5


def test_drawn_actions_are_as_at_the_end_of_training(trained):
    """The best one, and with a probability of 0.05 any of the nine."""
    seen = np.repeat(boards([0]), 20_000, axis=0)
    best = trained.predict(seen[0], deterministic=True)[0]
    shares = np.bincount(trained.predict(seen)[0], minlength=9) / 20_000
    assert shares[best] == pytest.approx(0.95 + 0.05 / 9, abs=0.006)
    np.testing.assert_allclose(np.delete(shares, best), 0.05 / 9, atol=0.003)


def test_states_that_were_never_met(sparse):
    """Drawn from what is legal, or the first of equal ones; and looking does not add them."""
    never = boards([3**9 - 1])  # nine marks of the opponent
    assert sparse.table.places([3**9 - 1]).tolist() == [-1]
    rows = len(sparse.table)
    mask = np.array([0, 0, 1, 0, 1, 0, 1, 0, 0])
    several = np.repeat(never, 3000, axis=0)
    drawn = sparse.predict(several, action_masks=np.tile(mask, (3000, 1)))[0]
    np.testing.assert_allclose(np.bincount(drawn, minlength=9) / 3000, mask / 3, atol=0.04)
    assert sparse.predict(never[0], deterministic=True, action_masks=mask)[0] == 2
    assert (sparse.q_values(never[0]) == 0).all()
    assert len(sparse.table) == rows


@pytest.mark.parametrize(
    ("observation", "masks", "message"),
    [
        (np.full(9, 3), None, r"observation \[3 3 3 3 3 3 3 3 3\] is not in MultiDiscrete"),
        (np.array([0, 0, 0, 0, -1, 0, 0, 0, 0]), None, "is not in MultiDiscrete"),
        (np.zeros(8, np.int64), None, r"has shape \(9,\), got \(8,\)"),
        (np.zeros(9), None, "is int64, got float64"),
        (np.zeros((2, 9), np.int64), np.ones((3, 9)), r"action masks of 2 observations have shape \(2, 9\)"),
    ],
    ids=["too large", "negative", "too short", "no whole numbers", "masks of others"],
)
def test_what_nobody_can_act_on(trained, observation, masks, message):
    with pytest.raises(ValueError, match=message):
        trained.predict(observation, action_masks=masks)


def test_masks_for_an_environment_without():
    agent = QLearning("FrozenLake-v1", seed=0)
    with pytest.raises(ValueError, match="action masks of 1 observations are not for this agent"):
        agent.predict(3, action_masks=[1, 1, 0, 0])
    assert agent.predict(3, deterministic=True)[0] == 0
    assert agent.q_values([0, 5]).shape == (2, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_step": 0}, "n_step must be from 1 to 1000, got 0"),
        ({"n_step": 1001}, "n_step must be from 1 to 1000"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0 and at most 1, got 0.0"),
        ({"learning_rate": 1.5}, "learning_rate must be above 0 and at most 1"),
        ({"gamma": 1.1}, "gamma must be from 0 to 1"),
        ({"exploration_rate": 1.5}, "exploration_rate must be from 0 to 1, as it is a probability"),
        ({"exploration": "softmax", "exploration_rate": 0.0}, "exploration_rate must be above 0, as it is a temp"),
        ({"exploration": "ucb", "exploration_rate": -1.0}, "exploration_rate must be at least 0"),
        ({"exploration": "greedy"}, "exploration"),
        ({"initial_value": float("inf")}, "initial_value must be finite"),
        ({"storage": "disk"}, "storage"),
        ({"dtype": "float16"}, "dtype"),
        ({"runtime": "thread"}, "runtime"),
        ({"workers": 2}, 'workers is for runtime="threads" or "processes", not "auto"'),
        ({"runtime": "threads", "workers": 0}, "workers must be at least 1, got 0"),
        ({"runtime": "threads", "workers": 3, "num_envs": 64}, "num_envs must be a multiple of workers=3"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 2**64}, "seed must be a whole number from 0"),
        ({"learning_rate_schedule": "linaer"}, "there is no schedule 'linaer': did you mean 'linear'?"),
        ({"exploration_schedule": "two_phase(2)"}, "fraction must be a share of training"),
        ({"learnig_rate": 0.1}, "there is no setting 'learnig_rate': did you mean 'learning_rate'?"),
        ({"hidden": (64,)}, "there is no setting 'hidden'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_impossible_settings(settings, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is checked below, without a pattern
        QLearning(GAME, **settings)
    assert message in str(refused.value)


def test_environments_that_no_table_can_learn(define):
    with pytest.raises(
        ValueError, match=r"a table needs observations of whole numbers .* those of CartPole-v1 are Box"
    ):
        QLearning("CartPole-v1")
    with pytest.raises(ValueError, match="q-learning chooses one of several actions, and those of Pendulum-v1 are Box"):
        QLearning("Pendulum-v1")
    huge = define(observation=velocirl.MultiDiscrete([2**31] * 3))
    with pytest.raises(ValueError, match="states, and a table can number"):
        QLearning(huge)
    large = define(observation=velocirl.Discrete(2**41))
    assert QLearning(large).config.storage == "sparse"
    with pytest.raises(ValueError, match=r'a dense table of \S+ would take 16 TiB: use storage="sparse"'):
        QLearning(large, storage="dense")


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_saved_and_loaded(tmp_path, request, storage):
    agent = request.getfixturevalue("trained" if storage == "dense" else "sparse")
    path = agent.save(tmp_path / "model")
    assert path == tmp_path / "model.safetensors"
    for kind in (QLearning, Agent):
        loaded = kind.load(tmp_path / "model")
        assert type(loaded) is QLearning
        assert loaded.config == agent.config
        assert_same_state(loaded.state(), agent.state())
        np.testing.assert_array_equal(greedy_policy(loaded), greedy_policy(agent))
    played = [velocirl.evaluate(one, episodes=200, seed=0, deterministic=True).returns for one in (loaded, agent)]
    np.testing.assert_array_equal(*played)
    with pytest.raises(ValueError, match=r"holds a q-learning agent; load it with QLearning\.load"):
        DQN.load(path)


@pytest.mark.parametrize("settings", [{}, {"storage": "sparse", "n_step": 3}], ids=["one step", "sparse, three steps"])
def test_saved_while_it_trains_and_led_to_its_end(tmp_path, settings):
    settings = {**OWN, "seed": 2, "num_envs": 48, **settings}
    saved = []

    def save(agent):
        saved.append(agent.save(tmp_path / f"at-{agent.steps}"))

    whole = QLearning(GAME, **settings).learn(65_536, save)
    assert len(saved) == 4
    for path in saved[:3]:
        again = QLearning.load(path)
        assert not again.finished
        again.prepare()
        assert_same_state(again.state(), read_state(path))
        assert_same_state(again.learn().state(), whole.state())
    half = QLearning(GAME, **settings).learn(65_536, stop_at(32_768)).learn()
    assert_same_state(half.state(), whole.state())


def test_an_untrained_agent_is_saved_too(tmp_path):
    agent = QLearning(GAME, seed=1)
    loaded = QLearning.load(agent.save(tmp_path / "new"))
    assert digest(loaded.learn(16_384)) == digest(agent.learn(16_384))


def test_damaged_files_are_refused(tmp_path, sparse):
    path = sparse.save(tmp_path / "model")
    good = path.read_bytes()
    for place in np.linspace(9, len(good) - 1, 40).astype(int):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        with pytest.raises(DamagedStateError):
            QLearning.load(path)
    for length in (0, 5, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(DamagedStateError):
            QLearning.load(path)
    path.write_bytes(good)
    assert_same_state(QLearning.load(path).state(), sparse.state())


def test_tables_of_something_else_are_refused(tmp_path, trained, sparse):
    path, few = trained.save(tmp_path / "model"), sparse.save(tmp_path / "few")
    with pytest.raises(ValueError, match=r"was trained with .*; FrozenLake-v1 has"):
        QLearning.load(path, env="FrozenLake-v1")
    for found, changes in ((path, {"dtype": "float64"}), (path, {"exploration": "ucb"}), (path, {"storage": "sparse"})):
        with pytest.raises(ValueError, match=r"table\.\w+ is float32 .*, and must be|has no array 'table\."):
            QLearning.load(found, **changes)
    with pytest.raises(ValueError, match=r"has an array 'table.state', which does not belong to it"):
        QLearning.load(few, storage="dense")
    state = read_state(few)
    for name, array in (
        ("table.values", state.arrays["table.values"][:-1]),
        ("table.values", state.arrays["table.values"][:, :-1]),
        ("table.state", np.zeros_like(state.arrays["table.state"])),
        ("table.state", state.arrays["table.state"] + 3**9),
        ("acting.rng", state.arrays["acting.rng"][:, :-1]),
    ):
        write_state(few, {**state.arrays, name: array}, state.document)
        with pytest.raises(
            ValueError, match=r"(table|acting)\.\w+ is|the arrays of the table differ|has a state twice"
        ):
            QLearning.load(few)
    fewer = {name: array for name, array in state.arrays.items() if name != "table.values"}
    write_state(few, fewer, state.document)
    with pytest.raises(ValueError, match=r"has no array 'table\.values'"):
        QLearning.load(few)


class Shifted(gymnasium.Env):
    """States 5, 6, 7; action 2 of 1, 2, 3 pays 1; an episode has 4 steps."""

    observation_space = gymnasium.spaces.Discrete(3, start=5)
    action_space = gymnasium.spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 5, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        return 5 + self.time % 3, float(action == 2), self.time == 4, False, {}


def test_spaces_that_do_not_start_at_0():
    gymnasium.register("Shifted-v0", Shifted)
    try:
        agent = QLearning("gym:Shifted-v0", seed=0, gamma=0.5).learn(2000)
        assert agent.predict(np.array([5, 6, 7]), deterministic=True)[0].tolist() == [2, 2, 2]
        assert agent.q_values(5).argmax() == 1
        with pytest.raises(ValueError, match="is not in Discrete"):
            agent.predict(4)
        assert velocirl.evaluate(agent, episodes=3).mean_return == 4
    finally:
        gymnasium.registry.pop("Shifted-v0")


@pytest.mark.parametrize(
    ("environment", "runtime"),
    [
        ({}, "serial"),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, "serial"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, "mpi"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}, "mpi"),
    ],
)
def test_the_runtime_that_is_left_open_is_that_of_the_launcher(environment, runtime, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert chosen_runtime("auto") == runtime
    assert chosen_runtime("threads") == "threads"


def test_tables_do_not_train_under_torchrun(monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match='start them with mpirun, or give runtime="serial"'):
        chosen_runtime("auto")
