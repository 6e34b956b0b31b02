"""`velocirl evaluate`: the figures are those of the model that is named."""

import json

import numpy as np
import pytest

import velocirl
from velocirl.cli.evaluate import histogram
from velocirl.cli.main import main


def evaluated(capsys, *arguments):
    capsys.readouterr()
    main(["evaluate", *map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_figures_are_those_of_the_model(train, capsys, tmp_path):
    run = train("--checkpoint-every", "300", "--evaluate-every", "512")
    agent = velocirl.PPO.load(run.checkpoints().latest().path)
    expected = velocirl.evaluate(agent, episodes=7, seed=5)
    found = evaluated(capsys, run.path, "--latest", "--episodes", 7, "--seed", 5)
    assert found["returns"] == expected.returns.tolist()
    assert found["lengths"] == expected.lengths.tolist()
    assert (found["mean"], found["std"]) == (expected.mean_return, expected.std_return)
    assert (found["min"], found["max"]) == (expected.returns.min(), expected.returns.max())
    assert (found["steps"], found["algorithm"], found["environment"]) == (1280, "ppo", "CartPole-v1")
    saved = agent.save(tmp_path / "model")
    assert evaluated(capsys, saved, "--episodes", 7, "--seed", 5)["returns"] == found["returns"]


def test_the_best_model_is_taken_where_there_is_one(train, capsys, refused):
    run = train("--checkpoint-every", "300", "--evaluate-every", "512")
    best = run.checkpoints().best().document
    assert evaluated(capsys, run.path)["steps"] == evaluated(capsys, run.path, "--best")["steps"] == best["steps"]
    assert evaluated(capsys, run.path, "--episodes", 20)["mean"] == best["best"]["score"]
    (run.path / "checkpoints" / "best.safetensors").unlink()
    assert evaluated(capsys, run.path)["steps"] == 1280
    assert "no best state was saved" in refused("evaluate", run.path, "--best")
    assert "choose --best or --latest" in refused("evaluate", run.path, "--best", "--latest")


def test_drawn_actions_differ_from_the_likeliest(train, capsys):
    train()
    drawn, likeliest = evaluated(capsys, "--stochastic"), evaluated(capsys)
    assert drawn["deterministic"] is False
    assert drawn["returns"] != likeliest["returns"]
    assert drawn == evaluated(capsys, "--stochastic")


def test_in_words(train, capsys):
    train()
    found = evaluated(capsys)
    main(["evaluate"])
    first, second, *bars = capsys.readouterr().out.splitlines()
    assert first == f"{found['model']}: CartPole-v1, ppo"
    mean, std, low, high, length = (found[name] for name in ("mean", "std", "min", "max", "mean_length"))
    spread = "±" if "±" in second else "+-"
    assert second == (
        f"return {mean:.2f} {spread} {std:.2f}  from {low:.2f} to {high:.2f}  over 100 episodes of {length:.1f} steps"
    )
    assert sum(int(bar.split()[-1]) for bar in bars) == 100


def test_a_histogram_counts():
    lines = histogram([0.0] * 3 + [10.0] * 6, ascii_only=True)
    assert [line.split() for line in lines] == [
        ["0", "to", "3.333", 16 * "#", "3"],
        ["3.333", "to", "6.667", "0"],
        ["6.667", "to", "10", 32 * "#", "6"],
    ]
    assert histogram([5.0, 5.0]) == []
    many = histogram(np.random.default_rng(0).normal(size=1000))
    assert len(many) == 10
    assert sum(int(line.split()[-1]) for line in many) == 1000


def test_an_episode_can_be_read(train, capsys):
    train(steps=128)
    main(["evaluate", "--episodes", "1", "--render", "text"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("position")]
    found = evaluated(capsys, "--episodes", 1)
    assert len(lines) == found["lengths"][0] + 1


def test_another_environment_and_files(train, capsys, my_pole, refused):
    run = train(steps=128)
    assert evaluated(capsys, run.path, "--env", my_pole, "--episodes", 2)["environment"] == "MyPole-v0"
    assert "was trained with" in refused("evaluate", run.path, "--env", "Acrobot-v1")
    model = run.checkpoints().latest().path
    model.write_bytes(b"nonsense")
    assert "is damaged" in refused("evaluate", model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no run 'nothing'"),
        (["--render", "txt"], "--render: cannot be 'txt': did you mean 'text'?"),
        (["--episode", "3"], "there is no option --episode: did you mean --episodes?"),
        (["--episodes", "0"], "episodes must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line(arguments, message, train, refused):
    train(steps=128)
    assert refused("evaluate", *arguments).startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--safety"], "CartPole-v1 has no constraints that a policy could be judged by"),
        (["--html", "report.html"], "--html goes with --safety"),
        (["--safety", "--html", "report.pdf"], "report.pdf must end in .json or .html"),
        (["--safety", "--video", "play.gif"], "--video does not go with --safety"),
        (["--safety", "--seeds", "0"], "--seeds must be at least 1, got 0"),
    ],
)
def test_mistakes_about_safety_are_one_line(arguments, message, train, refused):
    train(steps=128)
    assert refused("evaluate", *arguments).startswith(f"error: {message}")


def test_safety_of_a_run(train, capsys, tmp_path):
    run = train("--device", "python", steps=128, environment="ChemicalReactor-v0")
    report = tmp_path / "report.html"
    options = ["--episodes", 1, "--seeds", 2, "--scenario", "nominal", "--html", report]
    found = evaluated(capsys, run.path, "--safety", *options)
    expected = velocirl.evaluate_safety(
        velocirl.load(run.path), scenarios=["nominal"], seeds=2, episodes=1, responses=False
    )
    assert {name: value for name, value in found.items() if name != "model"} == expected.as_dict()
    assert list(found["scenarios"]["nominal"]) == ["ppo", "controller", "random"]
    assert report.read_text().startswith("<!doctype html>")
