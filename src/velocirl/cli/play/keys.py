"""Key bindings for the actions of an environment, chosen by their meanings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from velocirl.cli.play.keyboard import DOWN, LEFT, RIGHT, SPACE, UP

SHOWN = {LEFT: "←", RIGHT: "→", UP: "↑", DOWN: "↓", SPACE: "space"}
IDLE = {"stay", "noop", "no op", "nothing", "none", "idle", "coast", "wait"}
# Keys for words, in order of preference.
WORDS = {
    **dict.fromkeys(("left", "west"), (LEFT, "a")),
    **dict.fromkeys(("right", "east"), (RIGHT, "d")),
    **dict.fromkeys(("up", "north", "forward", "gas", "main engine"), (UP, "w")),
    **dict.fromkeys(("down", "south", "back", "backward", "brake"), (DOWN, "s")),
    **dict.fromkeys(("fire", "jump", "shoot", "pickup"), (SPACE,)),
    **dict.fromkeys(("up left", "upleft", "left jump"), ("q",)),
    **dict.fromkeys(("up right", "upright", "right jump"), ("e",)),
    **dict.fromkeys(("down left", "downleft"), ("z",)),
    **dict.fromkeys(("down right", "downright"), ("c",)),
    **dict.fromkeys(IDLE, ("x", ".")),
}
SIMILAR = {LEFT: "a", RIGHT: "d", UP: "w", DOWN: "s"}  # alternative letters for the arrow keys
LETTERS, DIRECTIONS = "rtfgvbyuiohjklnmp", "qezcwasdx"  # the latter when nothing else is free
ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")  # of keys, one for each choice of a composite action
# Action meanings of Gymnasium environments without `get_action_meanings`.
MEANINGS = {
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "stay", "right"),
    "Acrobot": ("left", "stay", "right"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("down", "up", "right", "left", "pickup", "drop"),
    "Blackjack": ("stick", "hit"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "CarRacing": ("nothing", "right", "left", "gas", "brake"),
}


class Keys:
    """Key bindings of actions: of one discrete choice, or of several, each with a row of keys."""

    def __init__(self, space: gymnasium.Space[Any], meanings: Sequence[str] = ()) -> None:
        self._several = isinstance(space, (MultiDiscrete, MultiBinary))
        self.idle: Any = None  # the action while no key is pressed
        if isinstance(space, Discrete):
            self.start, self.count = int(space.start), int(space.n)
            names = list(meanings) if len(meanings) == self.count else []
            keys = _keys_of([plain(one) for one in names]) if names else _numbered(self.count)
            self._chosen = {key: (0, place) for key, place in keys.items()}
            self._labels = names or [f"action {self.start + place}" for place in range(self.count)]
            idle = [place for place, name in enumerate(names) if plain(name) in IDLE]
            self.idle = idle[0] + self.start if idle else None
        else:
            counts = _choices(space)
            self._choice = np.zeros(len(counts), np.int64)
            self._dtype = space.dtype
            self._chosen = {ROWS[k][j]: (k, j) for k, count in enumerate(counts) for j in range(count)}

    @property
    def typed(self) -> bool:
        """Return whether there are too many actions for keys, so that their numbers are typed."""
        return not self._chosen

    @property
    def sent(self) -> bool:
        """Return whether Enter sends an action composed by several keys."""
        return self._several

    @property
    def action(self) -> Any:
        """The action composed by the keys so far."""
        return self._choice.astype(self._dtype)

    def press(self, key: str) -> Any:
        """Return the action of a key; None for an unassigned key."""
        if key not in self._chosen:
            return None
        choice, option = self._chosen[key]
        if not self._several:
            return self.start + option
        self._choice[choice] = option
        return self.action

    def lines(self, width: int) -> list[str]:
        """Return the keys and their actions, in lines of at most `width` characters."""
        if self.typed:
            return [f"type the number of an action, {self.start} to {self.start + self.count - 1}, and Enter"]
        if self._several:
            told = [
                f"choice {k + 1}: {' '.join(f'[{key}]' if option == self._choice[k] else key for key, option in row)}"
                for k, row in self._rows().items()
            ]
        else:
            keys: dict[int, list[str]] = {}
            for key, (_, place) in self._chosen.items():
                keys.setdefault(place, []).append(SHOWN.get(key, key))
            told = [_told("/".join(keys[place]), self._labels[place]) for place in sorted(keys)]
        return wrapped([*told, *["Enter step"] * self._several, "Esc end"], width)

    def _rows(self) -> dict[int, list[tuple[str, int]]]:
        rows: dict[int, list[tuple[str, int]]] = {}
        for key, (choice, option) in self._chosen.items():
            rows.setdefault(choice, []).append((key, option))
        return rows


def meanings_of(env: gymnasium.Env) -> Sequence[str]:
    """Return the meanings of an environment's actions, if they are known."""
    inner: Any = env.unwrapped
    own = getattr(getattr(inner, "environment", None), "action_meanings", ())
    if own:
        return own
    if hasattr(inner, "get_action_meanings"):
        return list(map(str, inner.get_action_meanings()))
    name = "" if env.spec is None else env.spec.name
    return MEANINGS.get(name, ())


def plain(meaning: str) -> str:
    """Normalize a meaning to lower case with single spaces: NOOP, up_left and Up-Left become noop and up left."""
    return " ".join(re.findall(r"[^\W_]+", meaning.lower())) or meaning.lower()


def wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Arrange parts side by side in lines of at most `width` characters."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def _keys_of(meanings: Sequence[str]) -> dict[str, int]:
    """Assign a key to each action: a single character to itself, words from `WORDS`, others a letter.

    Returns the action index by key; empty if there are too few keys.
    """
    keys: dict[str, int] = {}

    def give(place: int, wanted: Sequence[str]) -> bool:
        free = next((key for key in wanted if key not in keys), None)
        if free is not None:
            keys[free] = place
        return free is not None

    later = [
        place
        for place, name in enumerate(meanings)
        if not give(place, [name] if len(name) == 1 else WORDS.get(name, ()))
    ]
    later = [place for place in later if not give(place, WORDS.get(meanings[place].split(" ")[0], ())[:1])]
    for place in later:
        own = [one for one in meanings[place] if one in LETTERS]
        if not give(place, [*own, *LETTERS, *DIRECTIONS, *ROWS[0]]):
            return {}
    for arrow, letter in SIMILAR.items():
        if arrow in keys:
            keys.setdefault(letter, keys[arrow])
    return keys


def _numbered(count: int) -> dict[str, int]:
    """Assign digits to actions without meanings; empty if there are more actions than digits."""
    return {str(place): place for place in range(count)} if count <= 10 else {}


def _choices(space: gymnasium.Space[Any]) -> list[int]:
    """Return the number of options of each choice; raises for spaces without keys."""
    if isinstance(space, MultiBinary) and len(space.shape) == 1:
        counts = [2] * space.shape[0]
    elif isinstance(space, MultiDiscrete) and space.nvec.ndim == 1 and not np.any(space.start):
        counts = [int(one) for one in space.nvec]
    else:
        raise ValueError(
            f"--me plays environments with Discrete actions, and these are {space}: watch an agent instead"
        )
    if len(counts) > len(ROWS) or any(count > len(row) for count, row in zip(counts, ROWS, strict=False)):
        raise ValueError(f"--me has keys for {len(ROWS)} choices of up to ten options, and actions are {space}")
    return counts


def _told(key: str, label: str) -> str:
    return key if key == label else f"{key} {label}"
