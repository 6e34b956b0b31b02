"""The code of docs/recorded_data.md that learns from data and continues by steps runs, in small."""

import re
from pathlib import Path

import velocirl

PAGE = Path(__file__).parents[2] / "docs" / "recorded_data.md"
SMALL = {
    "learn(100_000)": "learn(1)",
    "learn(20_000)": "learn(2)",
    'data="reactor.vds")': 'data="reactor.vds", device="python", batch_size=4, hidden=(8,))',
    'prefill="reactor.vds")': 'prefill="reactor.vds", device="python", batch_size=4)',
}


def test_learning_from_data_and_then_online(tmp_path, monkeypatch):
    text = PAGE.read_text().partition("## Learning from data")[2]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    for written, instead in SMALL.items():
        assert written in code
        code = code.replace(written, instead)
    monkeypatch.chdir(tmp_path)
    velocirl.create_dataset("random", "ChemicalReactor-v0", steps=40, path="reactor.vds")
    found = {"velocirl": velocirl}
    exec(compile(code, str(PAGE), "exec"), found)  # our own page
    agent, online = found["agent"], found["online"]
    assert (agent.steps, online.steps) == (1, 2)
    assert online.built["critics"] == agent.built["critics"]
