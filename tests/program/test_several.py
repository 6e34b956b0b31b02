"""Numbers that come several at a time, and the episodes by which a rollout decides."""

from types import SimpleNamespace

import numpy as np
import pytest

from velocirl.program.counting.episodes import (
    add_episodes,
    episodes_type,
    find_episodes,
    logged_episodes,
)  # fmt: skip
from velocirl.program.several import flat_names, name_of, numbers_type

CONFIG = SimpleNamespace(limited=("heat", "pressure"))


def test_names_lie_side_by_side_and_are_an_array_for_functions():
    names = [*flat_names("loss", None, CONFIG), *flat_names("multiplier", "limited", CONFIG), "rows"]
    assert names == ["loss", "multiplier/heat", "multiplier/pressure", "rows"]
    assert [name_of(one) for one in names] == ["loss", "multiplier", "multiplier", "rows"]
    kind = numbers_type(names, np.float64)
    record = np.array([1.0, 2.0, 3.0, 4.0]).view(kind)[0]
    assert (record["loss"], record["multiplier"].tolist(), record["rows"]) == (1.0, [2.0, 3.0], 4.0)
    assert numbers_type(["multiplier/cost"], np.float32)["multiplier"].shape == (1,)
    assert numbers_type([], np.float32).names == ("nothing",)


@pytest.mark.parametrize("agents", [1, 2])
def test_episodes_are_counted_and_averaged_alike_on_any_device(agents):
    generator = np.random.default_rng(agents)
    ends = np.where(generator.random((agents, 7, 3)) < 0.3, 1, -1).astype(np.int32)
    costs = generator.integers(0, 9, (2, agents, 7, 3)).astype(np.float32)
    ends[-1] = -1 if agents == 2 else ends[-1]  # of the last one, nothing ended
    sums, totals, found = np.zeros((agents * 3, 3)), np.zeros((agents, 3)), np.zeros(agents, episodes_type(2))
    for i in range(agents * 3):
        add_episodes(i, 0, 0, ends, costs, sums)
    totals[:] = sums.reshape(agents, 3, 3).sum(1)
    found = found.view(np.recarray)
    for s in range(agents):
        find_episodes(s, 0, 0, totals, 1, found)
        ended = ends[s] >= 0
        assert found[s].count == ended.sum()
        np.testing.assert_allclose(found[s].costs, costs[:, s][:, ended].sum(1) / max(ended.sum(), 1), rtol=1e-6)
    if agents == 1:
        np.testing.assert_array_equal(logged_episodes(ends, costs), totals[0])
