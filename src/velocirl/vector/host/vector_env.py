"""Vector environment of any Gymnasium environment, in this process."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.engine.errors import DefinitionError
from velocirl.engine.warning import warn_caller
from velocirl.vector.host.contract import ContractError
from velocirl.vector.host.copies import Arrays, Copies, Description, Preparing, Records, Source, make_environments
from velocirl.vector.host.interface import RAISED_BY, HostInterface, find_source, time_limit_of


class HostVectorEnv(HostInterface, VectorEnv):  # repeated for skrl, which inspects only direct bases
    """Vector environment that steps Gymnasium environments one after another in this process.

    When episodes end, infos hold `final_info`, with the `episode` (returns `r`, lengths `l`), and `final_obs` with
    SAME_STEP autoreset. Each has a mask of the same name after an underscore. An `action_mask` is always passed on. A
    `cost` is passed on as `cost` of each step and `costs` with a column; the episode's is stored next to its return.

    All other infos are dropped unless `infos=True`, which passes only the environments' own, as Gymnasium does. Merging
    infos and sending them between processes takes longer than many environments' steps. The next step overwrites the
    results of `copy=False`. In a shard of several processes, errors number environments from `first`.
    """

    def __init__(
        self,
        environment: str | Source,
        num_envs: int,
        *,
        seed: int | Sequence[int | None] | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        infos: bool = False,
        first: int = 0,
        prepare: Preparing | None = None,
        **make_kwargs: Any,
    ) -> None:
        super().__init__(source := find_source(environment), num_envs, seed, autoreset_mode, copy, infos, make_kwargs)
        self.envs = make_environments(source, range(first, first + self.num_envs), make_kwargs, prepare)
        try:
            description = Description.of(self.envs)
            self._adopt(description)
        except (RuntimeError, ValueError):
            self.close()
            raise
        self._arrays = Arrays.allocate(description, self.num_envs)
        self._copies = Copies(self.envs, self._arrays, first, self.autoreset_mode, infos, warn_caller)

    @property
    def time_limit(self) -> int | None:
        """Number of steps after which an episode is truncated, or None if unknown."""
        return time_limit_of(self.envs[0]) or super().time_limit

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute of that name or, for a method, its result."""
        self._require_open()
        return tuple(self._copies.call(name, args, kwargs))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close every environment."""
        for environment in self.envs:
            environment.close()

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._copies.set_attr(name, values)

    def _reset_copies(
        self, seeds: dict[int, int | None], options: dict[str, Any] | None
    ) -> tuple[Records, np.ndarray | None]:
        return self._named(lambda: self._copies.reset(seeds, options)), None

    def _step_copies(self) -> tuple[Records, np.ndarray | None]:
        return self._named(self._copies.step), None

    def _named(self, work: Callable[[], Records]) -> Records:
        try:
            return work()
        except ContractError as error:
            self._resets_needed = True
            raise DefinitionError(str(error)) from None
        except Exception as error:
            error.add_note(f"{RAISED_BY} {self._arrays.current[0]} of {self.name}")
            self._resets_needed = True  # the environments before it have moved on, the others have not
            raise
