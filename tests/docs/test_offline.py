"""The walk-through of docs/offline.md does what it says: in full, and in small."""

import re
from pathlib import Path

import numpy as np
import pytest

import velocirl

PAGE = Path(__file__).parents[2] / "docs" / "offline.md"
SMALL = {
    "steps=72_000": "steps=3_600",
    "hidden=(64, 64)": "hidden=(16,)",
    "learn(20_000)": "learn(50)",
    "judge_offline(agent, data)": "judge_offline(agent, data, fits=2, updates=50)",
    "seeds=3, episodes=5": "seeds=1, episodes=1, scenarios=['nominal']",
}


def walk(folder, monkeypatch, changes):
    """Run the page's code from top to bottom, with some numbers changed; gives the names that it leaves."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    for written, instead in changes.items():
        assert code.count(written) == 1, written
        code = code.replace(written, instead)
    monkeypatch.chdir(folder)
    found = {}
    exec(compile(code, str(PAGE), "exec"), found)  # our own page
    return found


def test_the_page_runs(tmp_path, monkeypatch):
    found = walk(tmp_path, monkeypatch, SMALL)
    assert found["judgement"].value.horizon == 360
    assert found["judgement"].value.behaviour_return > 150
    assert set(found["report"].scenarios) == {"nominal"}
    assert {"reactor.vds", "reactor-iql.safetensors", "safety.json", "reactor.c"} == {
        path.name for path in tmp_path.iterdir()
    }
    loaded = velocirl.load(tmp_path / "reactor-iql.safetensors")
    seen = found["data"].observations[:5]
    assert np.array_equal(
        loaded.predict(seen, deterministic=True)[0], found["agent"].predict(seen, deterministic=True)[0]
    )


@pytest.mark.slow
def test_the_controller_is_as_good_as_the_operator_and_is_known_to_be(tmp_path, monkeypatch):
    found = walk(tmp_path, monkeypatch, {})
    operator, truth = found["data"].info.references["operator"], velocirl.evaluate(found["agent"], seed=3).mean_return
    assert truth > 0.95 * operator
    judgement = found["judgement"]
    assert judgement.value.mean_return == pytest.approx(truth, rel=0.05)
    assert judgement.check == pytest.approx(judgement.value.behaviour_return, rel=0.05)
    assert judgement.coverage.unusual < 0.15
    assert [found["report"].scenarios[name]["iql"].figures["cost"].value for name in ("nominal", "disturbed")] == [0, 0]
