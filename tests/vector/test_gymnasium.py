"""What Gymnasium's own tools make of our environments: its checker, its makers, its wrappers, its renderers."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorStatistics

import velocirl
from velocirl.engine import registry

every_environment = pytest.mark.parametrize(
    "name", [name for name in velocirl.list_envs() if registry.find(name).source.startswith(registry.BUILT_IN)]
)


@every_environment
def test_gymnasiums_checker_has_nothing_to_say(name):
    env = velocirl.make(name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)
    # These two are about how the spaces are drawn up, which is a choice; everything else would be a fault.
    allowed = ("A Box observation space minimum value is", "A Box observation space maximum value is")
    allowed += ("For Box action spaces, we recommend using a symmetric", "infinity. This is probably too")
    assert [str(one.message) for one in said if not any(part in str(one.message) for part in allowed)] == []


@every_environment
def test_gymnasium_makes_it_by_its_id(name):
    env = gymnasium.make(f"velocirl/{name}")
    assert env.spec.id == f"velocirl/{name}"
    assert env.unwrapped.environment is registry.find(name)
    seen, _ = env.reset(seed=3)
    np.testing.assert_array_equal(seen, velocirl.make(name).reset(seed=3)[0])
    env.close()


def test_gymnasium_makes_it_with_parameters_and_again_from_its_spec():
    env = gymnasium.make("velocirl/CartPole-v1", gravity=5.0)
    assert env.unwrapped.copies.params["gravity"][0] == 5.0
    again = gymnasium.make(env.spec)
    assert again.unwrapped.copies.params["gravity"][0] == 5.0


def test_gymnasium_makes_a_fleet_through_our_own_entry_point():
    envs = gymnasium.make_vec("velocirl/CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.unwrapped.environment is registry.find("CartPole-v1")
    ours, _ = velocirl.make_vec("CartPole-v1", 3).reset(seed=4)
    np.testing.assert_array_equal(envs.reset(seed=4)[0], ours)


def test_gymnasium_makes_a_fleet_with_options_of_our_own():
    envs = gymnasium.make_vec(
        "velocirl/Counter-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        params={"length": 2},
        autoreset_mode=AutoresetMode.NEXT_STEP,
        device="python",
    )
    envs.reset(seed=1)
    assert [envs.step(np.zeros(2, int))[0][0, 0] for _ in range(5)] == [1.0, 2.0, 0.0, 1.0, 2.0]


def test_gymnasium_runs_copies_side_by_side_itself():
    envs = gymnasium.make_vec("velocirl/CartPole-v1", num_envs=3, vectorization_mode="sync")
    seen, _ = envs.reset(seed=5)
    ours, _ = velocirl.make_vec("CartPole-v1", 3).reset(seed=[5, 6, 7])
    np.testing.assert_array_equal(seen, ours)
    assert envs.step(np.ones(3, int))[0].shape == (3, 4)
    envs.close()


def test_gymnasiums_statistics_of_one_environment():
    env = RecordEpisodeStatistics(velocirl.make("Counter-v0", length=4))
    for _ in range(2):
        env.reset(seed=1)
        for _ in range(4):
            infos = env.step(0)[4]
        assert (infos["episode"]["r"], infos["episode"]["l"]) == (6.0, 4)
    assert list(env.return_queue) == [6.0, 6.0]
    assert list(env.length_queue) == [4, 4]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_gymnasiums_statistics_of_a_fleet(mode):
    params = {"length": np.array([2, 4])}
    fleet = velocirl.make_vec("Counter-v0", 2, params=params, autoreset_mode=mode)
    envs = RecordVectorStatistics(fleet)
    envs.reset(seed=1)
    for _ in range(4):
        infos = envs.step(np.zeros(2, int))[4]
    for told in (infos, infos["final_info"]):
        assert told["episode"]["r"][1] == 6.0
        assert told["episode"]["l"][1] == 4
        assert told["_episode"][1]
    waits = mode == AutoresetMode.NEXT_STEP  # there the third step of copy 0 only begins its next episode
    assert list(envs.return_queue) == ([1.0, 6.0] if waits else [1.0, 1.0, 6.0])


@pytest.mark.parametrize("name", ["CartPole-v1", "TicTacToe-v1"])
def test_gymnasium_records_a_video(name, tmp_path):
    env = RecordVideo(velocirl.make(name, render_mode="rgb_array"), str(tmp_path / "films"), disable_logger=True)
    env.reset(seed=1)
    env.action_space.seed(1)
    while not any(env.step(env.action_space.sample())[2:4]):
        pass
    env.close()
    (film,) = (tmp_path / "films").glob("*.mp4")
    assert film.read_bytes()[4:8] == b"ftyp"


@every_environment
def test_pictures_are_rgb_arrays_of_one_size_that_change_with_the_state(name):
    env = velocirl.make(name, render_mode="rgb_array")
    assert env.metadata["render_modes"] == ["ansi", "rgb_array", "human"]
    env.action_space.seed(2)
    frames = []
    for seed in range(5):
        env.reset(seed=seed)
        frames.append(env.render())
        env.step(env.action_space.sample())
        frames.append(env.render())
    assert {(frame.dtype, frame.shape) for frame in frames} == {(np.dtype(np.uint8), frames[0].shape)}
    assert frames[0].ndim == 3
    assert frames[0].shape[2] == 3
    assert len({frame.tobytes() for frame in frames}) > 1


@every_environment
def test_text_is_a_string_that_changes_with_the_state(name):
    env = velocirl.make(name, render_mode="ansi")
    env.action_space.seed(3)
    texts = set()
    for seed in range(5):
        env.reset(seed=seed)
        texts.add(env.render())
        env.step(env.action_space.sample())
        texts.add(env.render())
    assert all(isinstance(text, str) and text.strip() for text in texts)
    assert len(texts) > 1


def test_text_without_a_function_of_its_own_names_the_fields():
    env = velocirl.make("CartPole-v1", render_mode="ansi")
    env.reset(seed=1)
    text = env.render()
    for field in ("position", "velocity", "angle", "angular_velocity"):
        assert f"{field} {env.copies.state[field][0]:.3f}"[:-1] in text


def test_at_the_end_of_an_episode_its_last_state_is_shown():
    env = velocirl.make("Counter-v0", length=2, render_mode="ansi")
    env.reset(seed=1)
    env.step(0)
    env.step(0)
    assert env.render() == "step 2 of 2"
    env.reset()
    assert env.render() == "step 0 of 2"


def test_a_fleet_shows_every_copy():
    envs = velocirl.make_vec("Counter-v0", 2, params={"length": np.array([3, 5])}, render_mode="ansi")
    envs.reset(seed=1)
    envs.step(np.zeros(2, int))
    assert envs.render() == ("step 1 of 3", "step 1 of 5")


def test_human_mode_opens_a_window_and_closes_it(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    env = velocirl.make("CartPole-v1", render_mode="human")
    env.reset(seed=1)
    assert pygame.display.get_surface().get_size() == (600, 400)
    assert env.render() is None
    first = pygame.surfarray.array3d(pygame.display.get_surface())
    for _ in range(3):
        env.step(1)
    assert not np.array_equal(first, pygame.surfarray.array3d(pygame.display.get_surface()))
    env.close()
    assert not pygame.display.get_init()


def test_without_a_render_mode_nothing_is_shown():
    env = velocirl.make("CartPole-v1")
    env.reset(seed=1)
    assert env.render() is None


def test_an_unknown_render_mode_is_refused_by_name():
    with pytest.raises(ValueError, match=r"CartPole-v1 renders as ansi, rgb_array, human; got 'svg'"):
        velocirl.make("CartPole-v1", render_mode="svg")


def test_an_environment_without_a_drawing_renders_as_text_only(define):
    environment = define()
    assert velocirl.make(environment).metadata["render_modes"] == ["ansi"]
    with pytest.raises(ValueError, match="renders as ansi; got 'rgb_array'"):
        velocirl.make(environment, render_mode="rgb_array")
