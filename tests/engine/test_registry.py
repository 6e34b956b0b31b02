"""Names of environments: found, suggested, redefined, and known to Gymnasium."""

import pkgutil

import gymnasium
import numpy as np
import pytest

import velocirl
from velocirl import Box, DefinitionError, Discrete, MultiDiscrete, environments, float32, int32, record
from velocirl.engine import registry


def gaining(amount):
    def step(state, params, action, rng):
        state.value += amount
        return state.value, False

    return step


def first_reward(environment):
    envs = velocirl.make_vec(environment, 1, seed=1)
    envs.reset()
    return float(envs.step(np.zeros(1, int))[1][0])


PARTS = (  # of others
    "minatar.screen",
    *(f"plants.{part}" for part in ("instruments", "pictures", "power_network")),
    *(f"platformer.{part}" for part in ("level", "motion", "pictures", "screen")),
)


def test_every_module_of_environments_is_found_by_itself():
    found = pkgutil.walk_packages(environments.__path__, "velocirl.environments.")
    modules = {module.name for module in found if not module.ispkg and not module.name.endswith(PARTS)}
    sources = {registry.find(name).source or "" for name in velocirl.list_envs()}
    assert {source for source in sources if source.startswith("velocirl.")} == modules
    assert velocirl.list_envs() == sorted(set(velocirl.list_envs()))
    assert {"CartPole-v1", "Counter-v0", "TicTacToe-v1"} <= set(velocirl.list_envs())


def test_defining_an_environment_makes_it_known(define):
    assert "Known-v0" not in velocirl.list_envs()
    environment = define(id="Known-v0")
    assert "Known-v0" in velocirl.list_envs()
    assert registry.find("Known-v0") is environment
    assert registry.find(environment) is environment
    assert gymnasium.make("velocirl/Known-v0").unwrapped.environment is environment


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CartPole-v2", "did you mean 'CartPole-v1'"),
        ("Cartpole-v1", "did you mean 'CartPole-v1'"),
        ("TicTacTo-v1", "did you mean 'TicTacToe-v1'"),
        ("MountainCar", "did you mean 'MountainCar-v0'"),
        ("CartPole-v0", r"did you mean 'CartPole-v1'\? Gymnasium's is 'gym:CartPole-v0'"),
        ("LunarLander-v3", "Gymnasium's is 'gym:LunarLander-v3'$"),  # nothing here comes near it
        ("LunarLander-v7", "Gymnasium's is 'gym:LunarLander-v3'$"),
        ("Xyzzy", r"velocirl.list_envs\(\) shows .*gym:ID is one of Gymnasium's"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(name, hint):
    for make in (velocirl.make, velocirl.make_vec, velocirl.PPO):
        with pytest.raises(ValueError, match=f"there is no environment '{name}': {hint}"):
            make(name)


def test_the_latest_definition_of_a_name_counts(define):
    for amount in (1.0, 2.0):
        environment = define(id="Redefined-v0", step=gaining(amount))
        assert first_reward("Redefined-v0") == amount
        assert first_reward(environment) == amount
        env = gymnasium.make("velocirl/Redefined-v0").unwrapped
        env.reset(seed=1)
        assert env.step(0)[1] == amount


def test_functions_without_a_module_may_be_defined_again(define):
    """As `exec` makes them from source text in a bare namespace."""
    for _ in range(2):
        namespace = {}
        exec("def step(state, params, action, rng):\n    return 1.0, False\n", namespace)
        environment = define(id="Bare-v0", step=namespace["step"])
        assert registry.find("Bare-v0") is environment


def test_a_fleet_keeps_the_definition_it_was_made_of(define):
    define(id="Redefined-v0", step=gaining(1.0))
    envs = velocirl.make_vec("Redefined-v0", 1, seed=1)
    envs.reset()
    define(id="Redefined-v0", step=gaining(2.0))
    assert envs.step(np.zeros(1, int))[1][0] == 1.0


def test_taking_the_name_of_a_built_in_environment_is_said_aloud(define):
    with pytest.warns(UserWarning, match=r"CartPole-v1 now means the one defined in \S*test_registry") as said:
        environment = define(id="CartPole-v1", step=gaining(1.0))
    assert len(said) == 1
    assert registry.find("CartPole-v1") is environment


@pytest.mark.parametrize("name", ["CartPole", "cart pole-v1", "CartPole-v", "CartPole-v1.5", "", "../Evil-v0", 5, None])
def test_a_name_that_is_none_is_refused(define, name):
    with pytest.raises(DefinitionError, match="is not of the form Name-v0"):
        define(id=name)


@pytest.mark.parametrize("name", ["A-v0", "Cart.Pole_2-Hard-v12"])
def test_names_of_gymnasiums_form_are_taken(define, name):
    assert registry.find(name) is define(id=name) if name in velocirl.list_envs() else define(id=name).id == name


@record
class Board:
    value: float32
    cells: int32[4]


def one_too_few(state, params, action):
    return 0.0, False


def three(state, params, more):
    pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": dict}, "state= must be a class decorated with @record"),
        ({"params": {"gravity": 9.8}}, "params= must be a class decorated with @record"),
        ({"step": one_too_few}, r"step must take \(state, params, action, rng\), but takes \(state, params, action\)"),
        ({"step": None}, "step= must be a plain function"),
        ({"reset": print}, "reset= must be a plain function"),
        ({"text": three}, r"text must take \(state, params\)"),
        ({"observation": float}, "observation= must be a Box, Discrete or MultiDiscrete"),
        ({"action": gymnasium.spaces.MultiBinary(3)}, "action= must be a Box, Discrete or MultiDiscrete"),
        ({"action": Discrete(3, start=1)}, "action= starts at 1"),
        ({"action": MultiDiscrete([[2, 2], [2, 2]])}, "action= must be a flat MultiDiscrete"),
        ({"action": Box(-1, 1, (2, 2))}, "action= must be a flat Box"),
        ({"max_steps": 0}, "max_steps must be a positive number"),
        ({"max_steps": -5}, "max_steps must be a positive number"),
        ({"max_steps": 2.5}, "max_steps must be a positive number"),
        ({"legal": three, "action": Box(-1, 1, (1,))}, "legal= masks Discrete or MultiDiscrete"),
        ({"report": ("valu",)}, "report names 'valu': did you mean 'value'"),
        ({"report": ("cells",), "state": Board}, "report names 'cells'"),
    ],
)
def test_a_definition_that_cannot_run_is_refused_where_it_is_written(define, given, message):
    with pytest.raises(DefinitionError, match=f"Wrong-v0: {message}"):
        define(id="Wrong-v0", **given)
    assert "Wrong-v0" not in velocirl.list_envs()
