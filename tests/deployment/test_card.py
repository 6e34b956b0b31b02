import hashlib
import json
import re

import numpy as np
import pytest
from heated_tank import make_tank
from recorded import made_up

import velocirl
from velocirl.cli.main import main
from velocirl.deployment.card import _verdict, write_card
from velocirl.deployment.markdown import facts, plain, table
from velocirl.deployment.validity import ranges, use
from velocirl.runs.directory import open_run
from velocirl.trajectories.figures import estimates
from velocirl.trajectories.safety import Judged, SafetyEvaluation

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def tank_run(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "tank"
    agent = velocirl.PPO(
        make_tank("CardTank-v0", scenarios={"nominal": {}}),
        hidden=(4,),
        num_envs=2,
        horizon=30,
        device="python",
        seed=1,
    )
    agent.learn(120, run_dir=place, progress=False)
    return agent, open_run(place)


def test_a_card_has_scores_limits_data_settings_and_versions(tank_run, tmp_path):
    agent, run = tank_run
    path = write_card(agent, tmp_path / "new" / "card", run, "the model", episodes=3, seeds=1)
    text = path.read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [
        "Intended use and validity", "Score", "Learning curve", "Safety", "What it reads and does", "Data",
        "Settings", "Versions",
    ]  # fmt: skip
    assert text.startswith("# PPO on CardTank-v0\n")
    mean = velocirl.evaluate(agent, episodes=3, seed=0).mean_return
    assert f"| 3 | {mean:,.2f} |" in text
    assert "| 0 | level | m |" in text
    assert "| 1 | heater | W | 0 | 400000 |" in text
    assert "| hidden | (4,) |" in text
    assert "| data set | none: it learnt from its own steps |" in text
    assert f"| trained with numpy | {run.description.versions['numpy']} |" in text
    assert re.search(r"\*\*(No limit was violated in 10 episodes|Limits were violated in \d+ of 10, [\d.]+%)", text)
    assert "interval: exact binomial (Clopper-Pearson)" in text
    shown = re.findall(r"!\[.*\]\((.*)\)", text)
    assert shown[0] == "learning_curve.png"
    assert len(shown) == 2  # and the trajectories of its only scenario
    for name in shown:
        assert (path.parent / name).read_bytes().startswith(PNG)
    assert sorted(one.name for one in path.parent.iterdir()) == sorted([*shown, "model.safetensors", "model_card.md"])
    model = path.parent / "model.safetensors"
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert f"| SHA-256 of model.safetensors | {digest} |" in text
    assert velocirl.load(model, agent.source.given).parameters.tobytes() == agent.parameters.tobytes()
    assert "| parameters judged | nominal: nominal |" in text
    assert "3 for the score; 1 seed of 10, 10 in all, for the safety in each of 1 scenario" in text
    assert "| limit that applied | none: training sought returns alone |" in text
    assert "velocirl.safety.Shield" in text
    seen = velocirl.rollout(agent, scenario="nominal", episodes=10, seed=0, device="python").signals["level"].values
    assert re.search(rf"\| level \| m \| [^|]*3 std\) \| {seen.min():.6g} to {seen.max():.6g} \|", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in rows]
    assert min(widths) >= 3


def test_the_verdict_counts_every_violation_and_stop():
    """Of five seeds of ten episodes, three are stopped: an interquartile mean over seeds is 0."""

    def judged(stops):
        seeds = [{"cost": row, "violation_rate": row, "emergency_stops": row} for row in stops.reshape(5, 10)]
        return {"mine": Judged(estimates([{**one, "return": one["cost"]} for one in seeds]), None)}

    def verdict(**scenarios):
        return _verdict(SafetyEvaluation("Tank-v0", "mine", range(5), 10, "s", {}, scenarios))

    three = np.zeros(50)
    three[:3] = 1.0
    text = verdict(nominal=judged(np.zeros(50)), narrow=judged(three))
    assert text.startswith("**Limits were violated in 3 of 50, 6.0% (1.2% to 16.6%) of episodes** (scenario narrow")
    assert "**Emergency stops ended 3 of 50, 6.0% (1.2% to 16.6%) of episodes**" in text
    quiet = verdict(nominal=judged(np.zeros(50)))
    assert quiet.startswith("**No limit was violated in 50 episodes.** With 95% confidence")
    assert quiet.endswith("in at most 7.2% of episodes.")


def test_a_card_without_limits_and_without_a_run(tmp_path):
    agent = velocirl.PPO("CartPole-v1", hidden=(4,), device="python", seed=1)
    text = write_card(agent, tmp_path, episodes=2).read_text()
    assert "The environment states no limits that must be kept" in text
    assert "Learning curve" not in text
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.safetensors", "model_card.md"]
    assert "| fallback | none: nothing takes over where an observation lies beyond these ranges |" in text


def test_what_learnt_from_data_counts_updates(tmp_path):
    agent = velocirl.BC(data=made_up("Pendulum-v1"), hidden=(4,), device="python", seed=1).learn(10, progress=False)
    card = write_card(agent, tmp_path / "card", episodes=2).read_text()
    assert "10 updates" in card
    assert "10 steps" not in card
    opening = velocirl.export(agent, tmp_path / "controller.c").read_text().partition("#")[0]
    assert "10 updates. Written by velocirl" in opening


def test_the_data_of_a_policy_that_learnt_from_them_and_their_judgement_are_told(tmp_path):
    data = made_up("Pendulum-v1")
    data.save(tmp_path / "data.vds")
    agent = velocirl.BC(data=str(tmp_path / "data.vds"), hidden=(4,), device="python", seed=1).learn(10, progress=False)
    missing = write_card(agent, tmp_path / "card", episodes=2).read_text()
    assert "The policy learnt from recorded data and was not judged by them" in missing
    assert f"| SHA-256 of the data | {data.checksum} |" in missing
    assert f"| transitions | {len(data.rewards):,}, none of them by this policy |" in missing
    low, high = data.observations[:, 2].min(), data.observations[:, 2].max()
    assert re.search(rf"\| [^|]*2[^|]* \|[^|]*\| {low:.6g} to {high:.6g} \|", missing)
    found = velocirl.judge_offline(agent, data, fits=2, updates=2)
    told = write_card(agent, tmp_path / "card", episodes=2, offline=found).read_text()
    assert "was not judged" not in told
    assert all(plain(line) in told for line in str(found).splitlines() if line)
    (tmp_path / "data.vds").unlink()
    model = agent.save(tmp_path / "bc.safetensors")
    main(["card", str(model), "--out", str(tmp_path / "again"), "--episodes", "2"])
    text = (tmp_path / "again" / "model_card.md").read_text()
    assert "was not judged by them" in text
    assert "| transitions | not known: the data that bc learnt from is not at" in text


def test_limits_and_drawn_parameters_are_told():
    tank = make_tank("LimitedCardTank-v0", scenarios={})
    settings = {"hidden": (4,), "num_envs": 2, "horizon": 30, "device": "python", "seed": 1}
    drawn = {"setpoint": velocirl.uniform(0.9, 1.1), "noise": 0.01}
    agent = velocirl.PPOLagrangian(
        tank, cost_limits={"level": 3.0}, params=drawn, normalise_observations=True, **settings
    )
    agent.learn(60, progress=False)
    rows = dict(use(agent, velocirl.Evaluation(np.zeros(2), np.ones(2)), None, None))
    assert rows["limit that applied"] == "mean cost of an episode in training: cost/level at most 3"
    words = "drawn for each episode: setpoint=uniform(0.9, 1.1); fixed: noise=0.01; all others nominal"
    assert (rows["parameters trained"], rows["parameters judged"]) == (words, words)
    count, mean, deviations = agent.observation_moments.state[:, 0]
    reach = 3 * np.sqrt(deviations / count)
    expected = ["level", "m", f"{mean - reach:.6g} to {mean + reach:.6g} (mean ± 3 std)", "not recorded"]
    assert ranges(agent, None, 8)[0] == expected


def test_the_command_writes_a_card(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    model = velocirl.QLearning("FrozenLake-v1", num_envs=4, seed=1).save(tmp_path / "table.safetensors")
    main(["card", str(model), "--out", str(tmp_path / "card"), "--episodes", "2"])
    path = tmp_path / "card" / "model_card.md"
    assert str(path) in capsys.readouterr().out
    assert path.read_text().startswith("# QLearning on FrozenLake-v1")
    for wrong in ([], ["--out", str(model)], ["--out", str(tmp_path / "x"), "--seeds", "0"]):
        with pytest.raises(SystemExit):
            main(["card", str(model), *wrong])
    assert not (tmp_path / "x").exists()


def test_what_stands_in_a_card_is_text():
    assert plain("a|b\n<script>[x](y)`c`") == r"a\|b \<script\>\[x\](y)\`c\`"
    assert table(["a", "b"], [["x|y", 1]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |"
    assert facts([("name", json.dumps({"a": 1}))]).splitlines()[2] == '| name | {"a": 1} |'
