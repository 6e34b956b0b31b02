"""Agents that learn from preprocessed pictures: Pong for real, whole games to judge them, and what is saved."""

from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from film import Film
from gymnasium.spaces import Box
from PIL import Image

import velocirl
from velocirl import A2C, DQN, PPO, QRDQN, evaluate
from velocirl.training.source import Source
from velocirl.vector.preprocessing.ale import ALEVectorEnv

PONG = "gym:ALE/Pong-v5"
SMALL = {"num_envs": 2, "network": "cnn(4x8s8) mlp(16)", "threads": 1, "seed": 1, "device": "cpu"}
MEMORY = {"buffer_size": 300, "learning_starts": 40, "batch_size": 8, "train_every": 8, "gradient_steps": 1}
ROLLOUT = {"horizon": 16, "epochs": 1, "minibatch_size": 16}
KINDS = [
    (DQN, MEMORY),
    pytest.param(QRDQN, {**MEMORY, "quantiles": 8}, marks=pytest.mark.slow),  # as DQN, but for its head
    (PPO, ROLLOUT),
]


@pytest.fixture
def film():
    gymnasium.register("Film-v0", Film, kwargs={"life": 8, "lives": 3})
    yield "gym:Film-v0"
    del gymnasium.registry["Film-v0"]


@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_pong_is_learnt_from_its_screens(kind, settings, tmp_path):
    """Parameters change by what was seen, and training goes on from where it was saved."""
    agent = kind(PONG, preprocess="atari", **SMALL, **settings)
    before = agent.parameters.copy()
    agent.learn(96)
    assert np.isfinite(agent.parameters).all()
    assert not np.array_equal(agent.parameters, before)
    loaded = kind.load(agent.save(tmp_path / "pong"))
    assert loaded.config == agent.config
    assert loaded.config.preprocess == "atari"
    np.testing.assert_array_equal(loaded.parameters, agent.parameters)
    assert loaded.learn(32).steps == agent.steps + 32
    assert not np.array_equal(loaded.parameters, agent.parameters)


def test_a_source_says_what_a_frame_is():
    source = Source(PONG, preprocess={"stack": 3, "size": 40})
    assert (source.stack, source.frame) == (3, Box(0, 255, (40, 40), np.uint8))
    assert source.observation_space == Box(0, 255, (3, 40, 40), np.uint8)
    envs = source.make_copies(2, seed=1, threads=1, workers=None)
    assert isinstance(envs, ALEVectorEnv)
    envs.close()
    plain = Source("gym:CartPole-v1")
    assert (plain.stack, plain.frame) == (1, plain.observation_space)


@pytest.mark.slow
def test_an_agent_is_judged_in_whole_games_by_their_own_scores(film):
    """In training a life of Film's is an episode, and rewards are their signs; games have 24 frames, 6 steps."""
    agent = DQN(film, preprocess="atari(noops=0, size=20)", **{**SMALL, "network": None, "hidden": (4,)}, **MEMORY)
    raw = Film(life=8, lives=3)
    raw.reset(seed=0)
    scores = [raw.step(0)[1] for _ in range(24)]
    judged = evaluate(agent, episodes=3, seed=0)
    assert judged.lengths.tolist() == [6] * 3
    actions = (judged.returns - sum(scores)) / 4  # each step of action 1 adds 1 in each of four frames
    assert np.array_equal(actions, actions.round())
    assert evaluate(agent, film, episodes=3, seed=0).returns.tolist() == judged.returns.tolist()
    agent.learn(16)
    assert set(agent.recent.lengths) == {2}


def test_settings_are_what_papers_have_unless_given(film):
    agent = PPO(film, preprocess="atari(noops=0, size=40)")
    assert (agent.config.network, agent.config.clip, agent.config.normalise_rewards) == ("nature", 0.1, False)
    assert PPO(film, preprocess="atari(noops=0, size=40)", hidden=(8,)).config.network is None
    assert A2C(film, preprocess="atari(noops=0, size=40)").config.layer_norm is None  # which the network would refuse
    assert PPO(film, preprocess="atari(noops=0, size=40)", network="cnn(4) mlp(8)").config.network == "cnn(4) mlp(8)"


def test_objects_are_preprocessed_too(tmp_path):
    options = {**SMALL, "network": None, "hidden": (4,)}
    for given in (Film(), Film, [Film, Film]):
        agent = PPO(given, preprocess="atari(size=20)", **options, **ROLLOUT)
        assert agent.source.observation_space.shape == (4, 20, 20)
        assert agent.config.preprocess == "atari(size=20)"
    ready = velocirl.make_vec(PONG, 2, preprocess="atari(size=20)")
    agent = PPO(ready, **options, **ROLLOUT)
    assert (agent.source.stack, agent.config.preprocess) == (4, None)  # it is preprocessed already
    loaded = PPO.load(agent.save(tmp_path / "ready"), velocirl.make_vec(PONG, 2, preprocess="atari(size=20)"))
    assert loaded.source.frame == Box(0, 255, (20, 20), np.uint8)
    with pytest.raises(ValueError, match="a VectorEnv is made already: give its id, what makes"):
        PPO(gymnasium.vector.SyncVectorEnv([Film]), preprocess="atari")


def test_screens_as_they_are_come_with_a_hint():
    with pytest.warns(UserWarning, match=r'are, \(210, 160, 3\): preprocess="atari" skips') as told:
        DQN(PONG, hidden=(2,), buffer_size=10)
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("environment", "options", "told"),
    [
        ("CartPole-v1", {"preprocess": "atari"}, "CartPole-v1 is compiled and has no preprocess="),
        ("gym:CartPole-v1", {"preprocess": "atari"}, "preprocess is for pictures"),
        (PONG, {"preprocess": "atari(skp=1)"}, "atari has no argument 'skp'"),
        (PONG, {"preprocess": "atari", "params": {"frameskip": 4}}, r"skips frames already \(frameskip=4\)"),
        (PONG, {"preprocess": "atari", "hidden": (2,), "workers": 2}, "steps on threads of ALE's own"),
        (PONG, {"preprocess": "atari(size=6)"}, "the image of 6 by 6 is smaller than a kernel of 8"),
    ],
)
def test_what_cannot_be_is_said_before_training(environment, options, told):
    with pytest.raises(ValueError, match=told):
        DQN(environment, buffer_size=10, num_envs=2, **options)


def test_a_film_is_of_whole_games(film, tmp_path):
    agent = DQN(film, preprocess="atari(noops=0, size=20)", **{**SMALL, "network": None, "hidden": (4,)}, **MEMORY)
    result = velocirl.record_video(agent, tmp_path / "play.gif")
    assert result.lengths.tolist() == [6]


def test_pong_is_filmed(tmp_path):
    agent = DQN(PONG, preprocess="atari", **SMALL, **MEMORY)
    seen = []
    velocirl.record_video(agent, tmp_path / "pong.gif", max_frames=20, watch=lambda one: seen.append(one.picture))
    with Image.open(tmp_path / "pong.gif") as film:
        assert film.size == (160, 210)
        assert film.n_frames == 1 + sum(
            not np.array_equal(*pair) for pair in pairwise(seen)
        )  # what stands still is one


@pytest.mark.cuda
@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_pong_is_learnt_on_a_gpu(kind, settings):
    agent = kind(PONG, preprocess="atari", **{**SMALL, "device": "cuda"}, **settings)
    before = agent.parameters.copy()
    agent.learn(96)
    assert np.isfinite(agent.parameters).all()
    assert not np.array_equal(agent.parameters, before)


class Lamp(gymnasium.Env):
    """One half of the picture is lit, in any colour; the right action says which. An episode has ten of them."""

    observation_space, action_space = Box(0, 255, (40, 40, 3), np.uint8), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._light(), {}

    def step(self, action):
        reward, self.time = float(action == self.side) - 0.5, self.time + 1
        return self._light(), reward, False, self.time == 10, {}

    def _light(self):
        self.side, picture = int(self.np_random.integers(2)), np.zeros((40, 40, 3), np.uint8)
        picture[:, 20 * self.side : 20 * self.side + 20] = self.np_random.integers(100, 256, 3)
        return picture


@pytest.mark.slow
def test_what_pictures_show_is_learnt():
    """Seed 1, 4,096 steps: of ten answers nine are right, where four pictures are seen and the last of them counts."""
    agent = PPO(
        Lamp, preprocess="atari(skip=1, life_loss=false, noops=0, size=20)", network="cnn(8x4s2, 16x4s2) mlp(32)",
        num_envs=8, horizon=32, minibatch_size=64, epochs=4, learning_rate=1e-3, gamma=0.0, seed=1, device="cpu",
    )  # fmt: skip
    agent.learn(4096)
    assert evaluate(agent, episodes=20, seed=5).mean_return >= 4.0  # of 5, by their own scores; by chance 0


@pytest.mark.slow
def test_pong_is_learnt_by_the_network_and_the_settings_of_papers():
    agent = PPO(PONG, preprocess="atari", seed=0, device="cpu")
    before = agent.parameters.copy()
    agent.learn(2048)
    assert agent.config.network == "nature"
    assert np.isfinite(agent.parameters).all()
    assert not np.array_equal(agent.parameters, before)
