"""Definition of an environment: records, spaces and scalar functions, checked where they are written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from keyword import iskeyword
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from velocirl.engine import registry
from velocirl.engine.action_parts import check_parts, counts_of, has_parts
from velocirl.engine.constraints import Constraint, checked_constraints
from velocirl.engine.drawing import drawing
from velocirl.engine.errors import DefinitionError
from velocirl.engine.framing import check_framing, framing, stacked_space
from velocirl.engine.operating import bound_controller, check_operation, declared_time_step
from velocirl.engine.records import NO_PARAMS, Record

SIGNATURES = {
    "reset": "(state, params, rng)",
    "step": "(state, params, action, rng)",
    "observe": "(state, params, observation)",
    "observe_row": "(state, params, y, row)",
    "legal": "(state, params, mask)",
    "draw": "(state, params, canvas)",
    "text": "(state, params)",
}
MAX_FPS = 1000
COMPILED = ("reset", "step", "observe", "observe_row", "legal")


@dataclass(frozen=True, eq=False)
class Environment:
    """Definition of a single environment; the engine runs it as a fleet, on any target.

    `reset`, `step`, `observe` or `observe_row` and `legal` are scalar functions and get compiled; `draw` and `text` are
    plain Python, for rendering. `report` names the state fields shown at the end of each episode. `options` names the
    parameters that `reset(options={...})` may set for the episodes that it begins. `presets` are tuned settings by
    algorithm name; they replace all generic defaults of the environment.

    An image may be written row by row, by `observe_row` in place of `observe`: a GPU then distributes the rows of each
    environment to many threads. With `skip=4` an action is repeated four times, or until `terminated`. Its rewards are
    summed, only the last state is observed, and `max_steps` and episode lengths count the agent's actions. With
    `stack=4` agents receive the four newest frames, oldest first, as an array (4, *shape of a frame); an episode's
    first frame fills it. The `observation` passed in is the space of one frame; afterwards `frame` is that space, and
    `observation` the agent's.

    `constraints` are limits that must be satisfied, see `Constraint`. `signals` and `actuators` name the numbers of an
    observation and of an action with their units, in order. `scenarios` are named parameter sets,
    `make(..., scenario="disturbed")`. `controller` is a reference controller with `predict`. `action_meanings` names
    each Discrete action, as ("left", "stay", "right"): `velocirl play ENV --me` chooses keys by them. `render_fps` is
    the number of steps per second in rendering; from 5 on, a human player plays in real time.

    `time_step` is the duration of one `step` in seconds; trajectories, reports and imported datasets use it. A field
    `time_step` of `params` declares it too; `time_step` is then the field's default.

    An action is a number (Discrete), an array (MultiDiscrete, Box) or composite. Parts of a Dict are fields,
    `action.kind`, `action.force[0]`; parts of a Tuple have indices, `action[0]`, `action[1][0]`.

        reset(state, params, rng)               writes every field of the state
        step(state, params, action, rng)        changes the state, returns (reward, terminated)
        observe(state, params, observation)     writes every element of the row
        observe_row(state, params, y, row)      writes row y of an image, (W,) of (H, W) or (W, C) of (H, W, C)
        legal(state, params, mask)              writes 1 for each legal action, else 0; choice by choice, part by part
        draw(state, params, canvas)             paints an image:
            canvas.view(left, right, bottom, top, width=600, height=400)    first: the visible part of the world
            canvas.rectangle(left, bottom, right, top, color)               a color is (red, green, blue), 0 to 255
            canvas.disc(x, y, radius, color)
            canvas.line(x1, y1, x2, y2, width, color)
            canvas.polygon([(x, y), ...], color)
            canvas.text(x, y, text, size, color, align="left")              size: height of a capital; or center, right
        text(state, params)                     returns a string
    """

    id: str
    _: KW_ONLY
    state: Record
    observation: gymnasium.Space
    action: gymnasium.Space
    reset: Callable[..., Any]
    step: Callable[..., Any]
    observe: Callable[..., Any] | None = None
    observe_row: Callable[..., Any] | None = None
    legal: Callable[..., Any] | None = None
    params: Record = NO_PARAMS
    max_steps: int | None = None
    time_step: float | None = None
    skip: int = 1
    stack: int = 1
    report: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    draw: Callable[..., Any] | None = None
    text: Callable[..., Any] | None = None
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    signals: Mapping[str, str] = field(default_factory=dict)
    actuators: Mapping[str, str] = field(default_factory=dict)
    scenarios: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    controller: Any = None
    action_meanings: tuple[str, ...] = ()
    render_fps: float = 30.0
    frame: gymnasium.Space = field(init=False)  # space of one frame; `observation` is that of the stack
    drawn: tuple[str, ...] = field(default=(), init=False)  # randomized parameters, see `drawing`
    plain: Environment | None = field(default=None, init=False)  # the environment without randomization, if it has some
    unframed: Environment | None = field(default=None, init=False)  # as its author wrote it, see `framing`

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not re.fullmatch(r"[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)*-v\d+", self.id):
            raise DefinitionError(f"Environment id {self.id!r} is not of the form Name-v0")
        for name in ("state", "params"):
            if not isinstance(getattr(self, name), Record):
                raise DefinitionError(f"{self.id}: {name}= must be a class decorated with @record")
        for name, signature in SIGNATURES.items():
            self._check_signature(name, signature)
        self._check_space("observation", self.observation, (Box, Discrete, MultiDiscrete))
        self._check_seeing()
        self._check_action()
        if self.max_steps is not None and not (isinstance(self.max_steps, int) and 0 < self.max_steps < 2**31):
            raise DefinitionError(f"{self.id}: max_steps must be a positive number of steps or None")
        object.__setattr__(self, "time_step", declared_time_step(self))
        if self.legal is not None and not counts_of(self.action):
            raise DefinitionError(f"{self.id}: legal= masks Discrete or MultiDiscrete actions, not {self.action}")
        if self.action_meanings and not (
            isinstance(self.action, Discrete) and len(self.action_meanings) == self.action.n
        ):
            raise DefinitionError(
                f"{self.id}: action_meanings= has {len(self.action_meanings)} names for {self.action}: name each action"
            )
        if not 0 < self.render_fps <= MAX_FPS:
            raise DefinitionError(f"{self.id}: render_fps must be above 0 and at most {MAX_FPS}, got {self.render_fps}")
        for name in self.report:
            if name not in self.state.fields or self.state.dtype[name].shape:
                raise DefinitionError(f"{self.id}: report names {name!r}{self.state.suggestion(name)}")
        for name in self.options:
            if name not in self.params.fields:
                raise DefinitionError(f"{self.id}: options names {name!r}{self.params.suggestion(name)}")
        object.__setattr__(self, "frame", self.observation)
        object.__setattr__(self, "observation", stacked_space(self.frame, self.stack))
        check_operation(self)
        object.__setattr__(self, "controller", bound_controller(self))
        object.__setattr__(self, "constraints", checked_constraints(self))
        registry.register(self)

    @property
    def functions(self) -> dict[str, Any]:
        """Scalar functions by name: those of the author, which are compiled."""
        values = {f"constraint {one.name}": one.value for one in self.constraints if callable(one.value)}
        return {name: getattr(self, name) for name in COMPILED if getattr(self, name) is not None} | values

    @property
    def double(self) -> bool:
        """True if its functions compute in double precision: if any field of its records is float64."""
        return self.state.double or self.params.double

    @property
    def source(self) -> str:
        """Name of the module in which it was defined."""
        return self.step.__module__ or "__main__"

    @property
    def num_masked(self) -> int:
        """Width of the action mask: one entry for each option of each discrete choice."""
        return sum(counts_of(self.action))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a built-in environment by its id, another by its parts.

        Pickle then refers to its functions as to any others, and cloudpickle includes those of a script or a notebook.
        """
        if self.drawn:
            return drawing, (self.plain, self.drawn)
        if self.unframed is not None:
            return framing, (self.unframed, self.skip, self.stack)
        if registry.found_anywhere(self):
            return registry.find, (self.id,)
        return from_parts, (vars(self).copy(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Environment:
        """Return the environment itself, as for functions: a definition never changes."""
        return self

    def _check_signature(self, name: str, signature: str) -> None:
        function = getattr(self, name)
        if function is None and name not in ("reset", "step"):
            return
        if not inspect.isfunction(function):
            raise DefinitionError(f"{self.id}: {name}= must be a plain function {name}{signature}, got {function!r}")
        code = function.__code__
        if code.co_argcount - len(function.__defaults__ or ()) != signature.count(",") + 1:
            raise DefinitionError(
                f"{self.id}: {name} must take {signature}, but takes {inspect.signature(function)}"
                f" ({code.co_filename}:{code.co_firstlineno})"
            )

    def _check_seeing(self) -> None:
        if (self.observe is None) == (self.observe_row is None):
            raise DefinitionError(
                f"{self.id}: give one of observe={SIGNATURES['observe']}, which writes all that is seen, and"
                f" observe_row={SIGNATURES['observe_row']}, which writes one row of a picture"
            )
        try:
            check_framing(self.observation, self.skip, self.stack)
        except ValueError as error:
            raise DefinitionError(f"{self.id}: {error}") from None
        if self.observe_row is not None and len(self.observation.shape or ()) not in (2, 3):
            raise DefinitionError(
                f"{self.id}: observe_row= writes rows of a picture, a Box of shape (H, W) or (H, W, C), and not of"
                f" {self.observation}"
            )

    def _check_action(self) -> None:
        if not has_parts(self.action):
            self._check_space("action", self.action, (Box, Discrete, MultiDiscrete))
            if isinstance(self.action, Box) and len(self.action.shape) != 1:
                raise DefinitionError(
                    f"{self.id}: action= must be a flat Box, such as Box(-1, 1, (3,)), got {self.action}"
                )
            return
        try:
            parts = check_parts(self.action)
        except ValueError as error:
            raise DefinitionError(f"{self.id}: action= {error}") from None
        for part in parts:
            if len(part.path) > 1:
                raise DefinitionError(
                    f"{self.id}: action= has the part {part.name!r} within a part; write one Dict or Tuple of all parts"
                )
            if isinstance(self.action, Dict) and (not part.name.isidentifier() or iskeyword(part.name)):
                raise DefinitionError(
                    f"{self.id}: action= has the part {part.name!r}, and step reads action.NAME; rename it"
                )
            self._check_space(f"action[{part.name}]", part.space, (Box, Discrete, MultiDiscrete, MultiBinary))

    def _check_space(self, name: str, space: gymnasium.Space, kinds: tuple[type, ...]) -> None:
        if not isinstance(space, kinds):
            more = ", or a Dict or Tuple of them" if name == "action" else ""
            raise DefinitionError(
                f"{self.id}: {name}= must be a Box, Discrete or MultiDiscrete space{more}, got {space!r}"
            )
        if isinstance(space, Discrete) and space.start != 0:
            raise DefinitionError(f"{self.id}: {name}= starts at {space.start}; start at 0 and shift in the functions")
        if isinstance(space, MultiDiscrete) and (space.nvec.ndim != 1 or np.any(space.start)):
            raise DefinitionError(f"{self.id}: {name}= must be a flat MultiDiscrete that starts at 0")

    def __repr__(self) -> str:
        return f"Environment({self.id!r})"


def from_parts(parts: dict[str, Any]) -> Environment:
    """Rebuild an environment from a pickle: it was checked when it was defined, and replaces no registered one."""
    environment = object.__new__(Environment)
    vars(environment).update(parts)
    registry.adopt(environment)
    return environment
