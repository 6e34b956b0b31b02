"""An agent that is watched plays as it would anyway, and a film has a frame for each moment of it."""

import numpy as np
import pytest
from PIL import Image, ImageSequence

import velocirl
from velocirl import DQN, PPO, record_video
from velocirl.training.actors.playing import moments

LENGTH = 12  # steps of an episode


def reset(state, params, rng):
    state.value = 0


def step(state, params, action, rng):
    state.value += 1
    return state.value, state.value >= LENGTH


def draw(state, params, canvas):
    canvas.view(0, LENGTH, 0, 2, width=120, height=20, background=(255, 255, 255))
    canvas.rectangle(0, 0, state.value, 2, (200, 30, 40))


@pytest.fixture
def agent(define):
    return DQN(define(reset=reset, step=step, draw=draw), device="python", seed=0)


def widths(path):
    """How much of each frame is filled, in steps."""
    with Image.open(path) as film:
        frames = [np.asarray(one.convert("RGB")) for one in ImageSequence.Iterator(film)]
    return [round((frame[10, :, 1] < 128).mean() * LENGTH) for frame in frames]


def test_every_moment_is_seen(agent):
    seen = list(moments(agent, "ansi", episodes=2))
    assert [(one.episode, one.step) for one in seen] == [(k, n) for k in range(2) for n in range(LENGTH + 1)]
    assert [one.ended for one in seen] == [n == LENGTH for _ in range(2) for n in range(LENGTH + 1)]
    assert seen[-1].total == sum(range(1, LENGTH + 1))
    assert "value 12" in seen[-1].picture


def test_it_plays_as_it_is_evaluated():
    agent = PPO("CartPole-v1", num_envs=4, horizon=16, device="python", seed=1)
    played = list(moments(agent, "ansi", seed=3))
    env = velocirl.make("CartPole-v1")
    observation, ended, steps = env.reset(seed=3)[0], False, 0
    while not ended:
        observation, _, terminated, truncated, _ = env.step(agent.predict(observation, deterministic=True)[0])
        ended, steps = terminated or truncated, steps + 1
    assert played[-1].step == steps


def test_a_gif_has_a_frame_for_each_moment(agent, tmp_path):
    result = record_video(agent, tmp_path / "play.gif", episodes=2, fps=20)
    assert widths(tmp_path / "play.gif") == [*range(LENGTH + 1)] * 2
    assert result.lengths.tolist() == [LENGTH] * 2
    with Image.open(tmp_path / "play.gif") as film:
        assert film.info["duration"] == 50
    assert [path.name for path in tmp_path.iterdir()] == ["play.gif"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio's reader leaves pipes open
def test_an_mp4_has_them_too(agent, tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    record_video(agent, tmp_path / "play.mp4", fps=10)
    with imageio.get_reader(tmp_path / "play.mp4") as film:
        assert film.get_meta_data()["fps"] == 10
        shares = [(frame[10, :, 1] < 128).mean() * LENGTH for frame in film]
    assert [round(share) for share in shares] == [*range(LENGTH + 1)]


def test_a_film_ends_where_it_is_told_to(agent, tmp_path):
    result = record_video(agent, tmp_path / "play.gif", max_frames=5)
    assert widths(tmp_path / "play.gif") == [*range(5)]
    assert len(result.returns) == 0


def test_what_was_filmed_before_an_interrupt_is_kept_and_before_a_fault_is_not(agent, tmp_path):
    path = tmp_path / "play.gif"

    def interrupt(one):
        if one.step == 3:
            raise KeyboardInterrupt

    def fail(one):
        if one.step == 3:
            raise OSError("no space left on device")

    with pytest.raises(KeyboardInterrupt):
        record_video(agent, path, watch=interrupt)
    assert widths(path) == [0, 1, 2, 3]
    before = path.read_bytes()
    with pytest.raises(OSError, match="no space"):
        record_video(agent, path, watch=fail)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["play.gif"]


def test_environments_of_gymnasium_are_filmed(tmp_path):
    agent = PPO("gym:CartPole-v1", num_envs=2, horizon=8, device="python", seed=0)
    result = record_video(agent, tmp_path / "play.gif", max_frames=9)
    with Image.open(tmp_path / "play.gif") as film:
        assert film.size == (600, 400)
        assert 2 <= film.n_frames <= 9
    assert len(result.returns) <= 1


def test_what_cannot_be_filmed_is_told(agent, define, tmp_path):
    with pytest.raises(ValueError, match=r"play\.avi must end in \.gif or \.mp4"):
        record_video(agent, tmp_path / "play.avi")
    with pytest.raises(ValueError, match="there is no directory"):
        record_video(agent, tmp_path / "nowhere" / "play.gif")
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        record_video(agent, tmp_path / "play.gif", episodes=0)
    plain = DQN(define(id="Undrawn-v0", reset=reset, step=step), device="python", seed=0)
    with pytest.raises(ValueError, match="Undrawn-v0 renders as ansi"):
        record_video(plain, tmp_path / "play.gif")
    assert not list(tmp_path.iterdir())
