"""The model that a run of an agent with limits gives: within them, or the one that exceeds them least."""

import json

import numpy as np
import pytest

import velocirl
from velocirl import Evaluate, PPOLagrangian
from velocirl.cli.main import main
from velocirl.runs.checkpoints import SCORE
from velocirl.runs.directory import open_run
from velocirl.runs.model_score import ModelScore
from velocirl.runs.models import say_best
from velocirl.training.evaluation import played_apart

SMALL = {"num_envs": 4, "horizon": 360, "minibatch_size": 360, "epochs": 1, "hidden": (8,), "threads": 1, "seed": 3}
STEPS = 3 * 4 * 360


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch, keep_runs_at):
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)


def agent(**changes):
    return PPOLagrangian("ChemicalReactor-v0", **{**SMALL, "device": "cpu", **changes})


def score_of(path):
    return ModelScore.read(open_run(path).checkpoints().best_document()[SCORE])


def test_a_model_that_exceeds_its_limit_is_given_with_a_warning(tmp_path, capsys):
    where = tmp_path / "run"
    trained = agent(cost_limit=1.0).learn(STEPS, run_dir=where, progress=False)
    score = score_of(where)
    assert not score.within
    assert score.costs[0].episodes == 100
    words = r"the best model of run \(over its limits: cost .* limit 1, which exceeds them least\), of step"
    with pytest.warns(UserWarning, match=words):
        loaded = velocirl.load(where)
    # The stated figures are those of the model, with actions drawn, from the same beginnings.
    played = played_apart(loaded)
    assert (played.mean_return, played.costs.cost.mean()) == (score.value, score.costs[0].mean)
    # Those decided; reported are others, which did not.
    afresh = played_apart(loaded, fresh=True).costs.cost.mean()
    assert (score.fresh[0].mean, score.fresh[0].episodes) == (afresh, 100)
    assert afresh != score.costs[0].mean
    assert str(score) in say_best(open_run(where).checkpoints().best(), "run")
    assert f"cost {afresh:.4g}," in str(score)
    main(["evaluate", str(where), "--episodes", "4", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["model"].startswith("the best model of run (over its limits: cost")
    assert told["violations"]["count"] == sum(cost > 0 for cost in told["costs"])
    assert told["cost"]["mean"] == np.mean(told["costs"])
    assert set(told["cost"]["by_constraint"]) == {one.name for one in trained.source.native.constraints}
    assert 0 <= told["emergency_stops"]["interval"][0] < told["emergency_stops"]["interval"][1] <= 1
    main(["evaluate", str(where), "--episodes", "4"])
    assert "emergency stops: 0 of 4, 0% (0% to 60.3%)" in capsys.readouterr().out
    velocirl.load(where, best=False)  # which nobody called the best


def test_judging_changes_nothing_of_training_and_within_limits_nobody_is_warned(tmp_path):
    alone = agent(cost_limit=1e6).learn(STEPS, progress=False)
    kept = agent(cost_limit=1e6).learn(STEPS, run_dir=tmp_path / "run", progress=False)
    for name, array in alone.state().arrays.items():
        assert array.tobytes() == kept.state().arrays[name].tobytes(), name
    assert str(score_of(tmp_path / "run")).startswith("within its limits: cost ")
    velocirl.load(tmp_path / "run")


def test_evaluations_are_judged_by_their_own_costs(tmp_path):
    """And a limit of a single constraint by its own."""
    evaluating = Evaluate(every=STEPS, episodes=3, directory=tmp_path / "models")
    trained = agent(cost_limits={"temperature": 5.0})
    trained.learn(STEPS, evaluating, progress=False)
    result = evaluating.results[-1][1]
    found = ModelScore.read(velocirl.runs.checkpoints.Checkpoints(tmp_path / "models").best_document()[SCORE])
    (cost,) = found.costs
    assert (cost.name, cost.limit, cost.episodes) == ("cost/temperature", 5.0, 3)
    assert cost.mean == result.costs.by_constraint["temperature"].mean()
    assert trained.metrics["eval/mean_cost"] == result.costs.cost.mean()
