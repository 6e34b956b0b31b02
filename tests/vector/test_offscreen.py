"""MuJoCo's pictures without a display."""

import gymnasium
import pytest

import velocirl
from velocirl.vector import offscreen

BROKEN = """
raise ImportError("no library for {backend}")
"""


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    """A machine without a display, where nobody has chosen how to draw."""
    pytest.importorskip("mujoco")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUJOCO_GL", "")
    offscreen._fault_of.cache_clear()
    yield
    offscreen._fault_of.cache_clear()


def test_a_robot_is_drawn_by_what_works_here():
    if all(map(offscreen._fault_of, offscreen.BACKENDS)):
        pytest.skip("neither EGL nor OSMesa is installed")
    env = velocirl.make("gym:InvertedPendulum-v5", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    env.close()
    assert picture.shape == (480, 480, 3)
    assert picture.std() > 0


def test_where_nothing_works_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(offscreen, "TRIAL", BROKEN)
    with pytest.raises(ValueError, match="apt install libegl1") as caught:
        velocirl.make("gym:InvertedPendulum-v5", render_mode="rgb_array")
    assert str(caught.value) == (
        "gym:InvertedPendulum-v5 draws with OpenGL, and without a display neither EGL nor OSMesa works (EGL:"
        " ImportError: no library for egl, OSMesa: ImportError: no library for osmesa): install one, as by"
        " apt install libegl1 libgl1-mesa-dri, or apt install libosmesa6, and pip install PyOpenGL"
    )
    assert offscreen.os.environ["MUJOCO_GL"] == ""


def test_the_second_is_taken_where_the_first_does_not_work(monkeypatch):
    monkeypatch.setattr(offscreen, "TRIAL", "assert '{backend}' == 'osmesa'")
    env = gymnasium.make("InvertedPendulum-v5")
    offscreen.choose_backend(env, "rgb_array", "it")
    assert offscreen.os.environ["MUJOCO_GL"] == "osmesa"


@pytest.mark.parametrize(
    ("name", "render_mode", "variable"),
    [
        ("InvertedPendulum-v5", None, None),
        ("CartPole-v1", "rgb_array", None),
        ("InvertedPendulum-v5", "rgb_array", "DISPLAY"),
        ("InvertedPendulum-v5", "rgb_array", "MUJOCO_GL"),
    ],
)
def test_nothing_is_tried_where_it_is_not_needed(monkeypatch, name, render_mode, variable):
    monkeypatch.setattr(offscreen, "TRIAL", BROKEN)
    if variable is not None:
        monkeypatch.setenv(variable, "glfw")
    offscreen.choose_backend(gymnasium.make(name), render_mode, "it")
    assert offscreen.os.environ["MUJOCO_GL"] == ("glfw" if variable == "MUJOCO_GL" else "")
