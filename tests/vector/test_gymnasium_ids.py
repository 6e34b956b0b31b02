"""Environments of Gymnasium that cannot be made: why, in one line, with what to do."""

import sys

import gymnasium
import pytest

import velocirl
from velocirl import PPO, TabularModel
from velocirl.vector.gymnasium_ids import find_spec

MISSING = {
    "gym:CartPol-v1": "Gymnasium has no environment 'CartPol-v1': did you mean 'gym:CartPole-v1'?",
    "gym:CartPole-v9": "Gymnasium has no environment 'CartPole-v9': did you mean 'gym:CartPole-v1'?",
    "gym:LunarLander-v1": "Gymnasium has no environment 'LunarLander-v1': did you mean 'gym:LunarLander-v3'?",
    "gym:nowhere/Thing-v0": "install what defines it, and name its module: gym:MODULE:nowhere/Thing-v0",
    "gym:ALE/Pang-v5": "Gymnasium has no environment 'ALE/Pang-v5': did you mean 'gym:ALE/Pong-v5'?",
    "gym:Bad Name": "'Bad Name': an id is of the form Name-v1",
    "gym:math:Zyxwvuts-v0": "Gymnasium has no environment 'Zyxwvuts-v0': math registers none of that name",
    "gym:no_such_module:Thing-v0": "Python finds no module 'no_such_module'; install it or, where it lies in this dir",
}


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("make", [velocirl.make, velocirl.make_vec, PPO], ids=lambda make: make.__name__)
def test_what_is_not_there_is_said_in_one_line(make, name):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is asserted
        make(name)
    assert MISSING[name] in str(caught.value)
    assert "\n" not in str(caught.value)


def moved(**_):
    raise ImportError("these have been moved to another project.")


def without_a_package(**_):
    raise gymnasium.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')


def without_jax(**_):
    raise ModuleNotFoundError("No module named 'jax'", name="jax")


@pytest.fixture
def register():
    """Register an environment for this test."""
    names = []

    def register(name, entry_point):
        names.append(name)
        gymnasium.register(name, entry_point=entry_point)

    yield register
    for name in names:
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        (moved, r"gym:Vanishing-v1 cannot be made: these have been moved to another project; use 'gym:Vanishing-v2'"),
        (without_jax, "gym:Vanishing-v1 needs more than is installed: No module named 'jax'"),
        (without_a_package, "gym:Vanishing-v1 needs more than is installed: Box2D is not installed, run `pip install"),
    ],
)
@pytest.mark.parametrize("make", [velocirl.make, velocirl.make_vec, PPO], ids=lambda make: make.__name__)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_what_cannot_be_made_says_what_to_do(make, entry_point, message, register):
    register("Vanishing-v1", entry_point)
    register("Vanishing-v2", without_a_package)
    with pytest.raises(ValueError, match=message):
        make("gym:Vanishing-v1")


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_what_has_moved_in_gymnasium_itself():
    with pytest.raises(ValueError, match=r"gym:Ant-v3 cannot be made: .*gymnasium-robotics.*; use 'gym:Ant-v5'"):
        PPO("gym:Ant-v3")
    with pytest.raises(ValueError, match="did you mean 'gym:FrozenLake-v1'"):
        TabularModel.from_gymnasium("FrozenLak-v1")


def test_a_module_that_is_broken_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_environments.py").write_text("1 / 0")
    with pytest.raises(ValueError, match="broken_environments cannot be imported: ZeroDivisionError: division by zero"):
        find_spec("broken_environments:Thing-v0")
    (tmp_path / "needy_environments.py").write_text("import no_such_module")
    with pytest.raises(ValueError, match="needy_environments cannot be imported: No module named 'no_such_module'"):
        find_spec("needy_environments:Thing-v0")
    assert "broken_environments" not in sys.modules


@pytest.mark.parametrize(
    ("name", "module", "told"),
    [
        ("gym:ALE/Pong-v5", "ale_py", "needs 'ale_py', which is not installed: pip install \"velocirl[atari]\""),
        ("gym:NES/SuperMarioBros-v0", "gym_super_mario_bros", "pip install gym-super-mario-bros"),
    ],
)
def test_the_packages_of_known_namespaces_are_named(name, module, told, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "velocirl.vector.adapters.super_mario", raising=False)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is asserted
        velocirl.make_vec(name)
    assert told in str(caught.value)


def test_games_of_ales_need_no_name_of_their_module():
    assert find_spec("ALE/Pong-v5").entry_point == "ale_py.env:AtariEnv"
    assert find_spec("ale_py:ALE/Pong-v5") is find_spec("ALE/Pong-v5")


def test_what_installs_an_environment_of_gymnasiums_own_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio", None)  # where mujoco itself is there
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ValueError, match=r'gym:Swimmer-v5 needs more than .*; pip install "gymnasium\[mujoco\]"$'):
        PPO("gym:Swimmer-v5")
