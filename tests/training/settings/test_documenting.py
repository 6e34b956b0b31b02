"""What help(PPO) and its signature say: every setting, with its default and what it is for."""

import dataclasses
import inspect
import pydoc
import re

import pytest

from velocirl import A2C, DQN, PPO, SAC, QLearning
from velocirl.training.settings.documenting import default_of, descriptions, shown, signature_of

every_kind = pytest.mark.parametrize("kind", [PPO, A2C, DQN, SAC, QLearning])


def plain(text):
    """A text without its line breaks."""
    return " ".join(text.replace("\n |", "\n").split())


@every_kind
def test_help_lists_every_setting_with_its_default_and_its_text(kind):
    text = pydoc.plain(pydoc.render_doc(kind))
    told, settings = plain(text), text[text.index("Settings:") :]
    texts = descriptions(kind.Config)
    places = []
    for field in dataclasses.fields(kind.Config):
        line = f"{field.name}: {field.type} = {default_of(field)!r}"
        assert line in told
        assert f"{line} {plain(texts[field.name])}" in told
        places.append(re.search(rf"^[ |]+{field.name}: ", settings, re.MULTILINE).start())
    assert places == sorted(places)


def test_help_begins_with_what_the_algorithm_is():
    assert PPO.__doc__.startswith("Proximal policy optimisation: collect a rollout")
    assert "    clip: float = 0.2\n        " in PPO.__doc__
    assert "\n    huber:" in DQN.__doc__
    assert "\n    huber:" not in PPO.__doc__
    assert max(map(len, PPO.__doc__.splitlines())) <= 120


@every_kind
def test_the_signature_has_every_setting_by_name(kind):
    signature = inspect.signature(kind)
    env, *settings = signature.parameters.values()
    assert (env.name, env.kind) == ("env", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [one.name for one in settings] == [field.name for field in dataclasses.fields(kind.Config)]
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in settings)
    assert {one.name: one.default for one in settings} == vars(kind.Config())
    signature.bind("Counter-v0", gamma=0.9)
    with pytest.raises(TypeError, match="gama"):
        signature.bind("Counter-v0", gama=0.9)


def test_a_default_is_that_of_the_algorithm_and_not_of_its_base():
    assert inspect.signature(DQN).parameters["max_grad_norm"].default == 10.0
    assert "max_grad_norm: float = 10.0" in DQN.__doc__
    assert "max_grad_norm: float = 0.5" in PPO.__doc__
    assert plain(descriptions(DQN.Config)["max_grad_norm"]) == plain(descriptions(PPO.Config)["max_grad_norm"])


@dataclasses.dataclass
class Base:
    width: int = 3
    """How wide
    it is."""
    plain: float = 1.0


@dataclasses.dataclass
class Config(Base):
    width: int = 4
    sides: tuple[int, ...] = dataclasses.field(default_factory=lambda: (1, 2))
    """How long its sides are."""


def test_texts_stand_below_their_fields_and_come_from_bases_too():
    assert descriptions(Config) == {"width": "How wide it is.", "sides": "How long its sides are."}
    assert str(signature_of(Config)).endswith("= 4, plain: 'float' = 1.0, sides: 'tuple[int, ...]' = (1, 2))") or str(
        signature_of(Config)
    ).endswith("= 4, plain: float = 1.0, sides: tuple[int, ...] = (1, 2))")


def test_a_default_as_one_would_write_it():
    assert [shown(one) for one in (None, True, False, 0.5, "adam")] == ["none", "on", "off", "0.5", "adam"]
    assert (shown((64, 64)), shown({"length": 3}), shown({})) == ("64 64", "length=3", "none")
