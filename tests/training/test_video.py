"""Videos of an agent while it learns."""

from itertools import pairwise

import gymnasium
import pytest
from PIL import Image

from velocirl import DQN, Video

SMALL = {
    "device": "python",
    "seed": 0,
    "num_envs": 4,
    "learning_starts": 100,
    "batch_size": 4,
    "buffer_size": 512,
    "hidden": (4,),
}


def reset(state, params, rng):
    state.value = 0


def step(state, params, action, rng):
    state.value += 1
    return state.value, False


def draw(state, params, canvas):
    canvas.view(0, 6, 0, 2, width=60, height=20)
    canvas.rectangle(0, 0, state.value, 2, (200, 30, 40))


@pytest.fixture
def agent(define):
    return DQN(define(reset=reset, step=step, draw=draw, max_steps=6), **SMALL)


def frames(path):
    with Image.open(path) as film:
        return film.n_frames


def test_an_episode_is_filmed_every_so_many_steps_and_at_the_end(agent, tmp_path):
    video, seen = Video(tmp_path / "some" / "videos", every=40, episodes=2), [0]
    agent.learn(250, callbacks=[video, lambda agent: seen.append(agent.steps)])
    due = [now for before, now in pairwise(seen) if now // 40 > before // 40 or now == seen[-1]]
    assert [path.name for path in video.videos] == [f"step-{steps:09d}.gif" for steps in due]
    assert len(due) > 2
    assert sorted((tmp_path / "some" / "videos").iterdir()) == video.videos
    assert [frames(path) for path in video.videos] == [14] * len(due)


def test_a_film_ends_after_its_frames_and_training_is_as_without(agent, define, tmp_path):
    video = Video(tmp_path, every=120, max_frames=3)
    agent.learn(120, callbacks=[video])
    assert [frames(path) for path in video.videos] == [3]
    other = DQN(define(reset=reset, step=step, max_steps=6), **SMALL).learn(120)
    assert (agent.parameters == other.parameters).all()


def test_what_cannot_be_filmed_is_refused_before_the_first_step(agent, define, tmp_path):
    plain = DQN(define(id="Undrawn-v0"), **SMALL)
    with pytest.raises(ValueError, match="Undrawn-v0 renders as ansi"):
        plain.learn(100, callbacks=[Video(tmp_path, every=50)])
    assert plain.steps == 0
    assert not list(tmp_path.iterdir())
    for options, message in (
        ({"ending": ".avi"}, r"ending='\.avi' is unknown: use \.gif or \.mp4"),
        ({"every": 0}, "every"),
        ({"episodes": 0}, "episodes"),
        ({"max_frames": 0}, "max_frames"),
    ):
        with pytest.raises(ValueError, match=message):
            Video(tmp_path, **options)


def test_a_second_training_leaves_the_videos_of_the_first(agent, define, tmp_path, capsys):
    agent.learn(48, callbacks=[Video(tmp_path / "videos", every=1000)])
    video = Video(tmp_path / "videos", every=1000)
    other = DQN(define(reset=reset, step=step, draw=draw, max_steps=6), **SMALL)
    other.learn(48, callbacks=[video])
    assert video.videos == [tmp_path / "videos-2" / "step-000000048.gif"]
    assert f"those of this one are saved in {tmp_path / 'videos-2'}" in "".join(capsys.readouterr())
    again = Video(tmp_path / "videos-2", every=1000)
    other.learn(16, callbacks=[again])
    assert again.directory == tmp_path / "videos-2"


def test_a_film_that_cannot_be_written_is_a_warning(agent, tmp_path):
    video = Video(tmp_path / "videos", every=40)

    def obstruct(agent):
        if (tmp_path / "videos").is_dir():
            (tmp_path / "videos").rmdir()
            (tmp_path / "videos").touch()

    with pytest.warns(UserWarning, match=r"the video .*step-000000048\.gif could not be written"):
        agent.learn(48, callbacks=[obstruct, video])
    assert agent.steps == 48
    assert not video.videos


def test_environments_that_were_given_as_functions_are_filmed(tmp_path):
    agent = DQN(lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"), **SMALL)
    video = Video(tmp_path, every=16, max_frames=4)
    agent.learn(16, callbacks=[video])
    assert [path.name for path in video.videos] == ["step-000000016.gif"]
    blind = DQN(lambda: gymnasium.make("CartPole-v1"), **SMALL)
    with pytest.raises(ValueError, match=r"has render_mode=None: make it with render_mode='rgb_array'"):
        blind.learn(16, callbacks=[video])
