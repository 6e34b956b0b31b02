"""What speaks for and against a policy, and how it is said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

import velocirl
from velocirl import Dataset, DatasetInfo, FittedQEvaluation, OfflineJudgement
from velocirl.judging.coverage import Coverage
from velocirl.judging.rollouts import Rollouts
from velocirl.judging.stops import StopRisk

INFO = DatasetInfo(
    Box(-1, 1, (2,)), Box(-1, 1, (1,)), constraints=("spin",), references={"random": 0.0, "expert": 20.0}
)
QUICK = {"device": "python", "hidden": (8,), "fits": 1, "updates": 8, "rollouts": 10}


def judgement(
    estimates=(14.0, 15.0, 16.0), returns=(9.0, 10.0, 11.0), check=10.1, unusual=0.06, cost=None, far=0, stops=(0, 0, 0)
):
    value = FittedQEvaluation("iql", np.array(estimates), np.array(returns), 3, 50, 1.0)
    cost = cost and FittedQEvaluation("iql", np.array(cost), np.array([1.0, 1.0]), 3, 50, 1.0)
    fitted = FittedQEvaluation("iql", np.array(stops), np.zeros(3), 3, 50, 1.0, 0.0, 1.0)
    rollouts = Rollouts((np.arange(100) < far) * 1.0, np.zeros(100), np.zeros(100, bool), 80.0, 12, 50)
    risk = StopRisk(fitted, rollouts, 0)
    return OfflineJudgement(value, check, cost, risk, Coverage(unusual, 0.05, 0.1, 0.1, 100), INFO)


@pytest.mark.parametrize(
    ("found", "for_it", "against_it"),
    [
        (judgement(estimates=(19.0, 20.0, 21.0)), ["at most 3.7%", "return more", "acts there as the data did"], []),
        (judgement(estimates=(1.0, 1.1, 1.2)), ["stops", "acts there as the data did"], ["return less"]),
        (judgement(), ["stops", "acts"], ["not known to return more"]),
        (judgement(unusual=0.4), ["stops"], ["not known", "40% of its actions are unlike"]),
        (judgement(check=30.0), ["stops", "acts"], ["not known", "off by 20"]),
        (judgement(cost=(4.0, 4.1)), ["stops", "acts"], ["violate constraints more often", "not known"]),
        (judgement(cost=(0.5, 1.5)), ["stops", "acts"], ["not known"]),
        (judgement(stops=(0.1, 0.3, 0.0)), ["stops", "acts"], ["stops: 13% (0% to 94%)", "not known"]),
        (judgement(stops=(0.3, 0.3, 0.3)), [], ["emergency stop in 30%", "not known"]),
        (judgement(far=40), [], ["40% of its rollouts leave", "up to 50% of episodes", "not known"]),
    ],
)
def test_what_speaks_for_it_and_against_it(found, for_it, against_it):
    for said, wanted in ((found.speaks_for, for_it), (found.speaks_against, against_it)):
        assert len(said) == len(wanted)
        assert all(part in text for text, part in zip(said, wanted, strict=True))


def test_the_table_has_scores_where_the_data_knows_random_actions_and_an_expert():
    said = str(judgement()).splitlines()
    assert said[0] == "Verdict: fit for a trial."
    assert said[1].startswith("Against deploying it: it is not known")
    assert said[2].startswith("For deploying it: emergency stops in at most 3.7%")
    lines = said[3:]
    assert lines[0].split() == ["iql", "data"]
    assert " ".join(lines[1].split()) == "return over 50 steps 15.0 (9.730 to 20.3) 10.0 in 3 episodes"
    assert lines[2].split()[-2:] == ["75.0", "50.0"]
    assert lines[3].split()[-1] == "10.1"
    assert " ".join(lines[4].split()) == "episodes with an emergency stop 0.0% (up to 3.7%) 0 in 3 episodes"
    assert " ".join(lines[5].split()) == "the same by fitted Q evaluation 0% (0% to 0%)"
    assert lines[6].split()[-2:] == ["6%", "5%"]
    assert [line.split("  ")[0] for line in lines[7:]] == [
        "rollouts that leave the data", "effective episodes", "steps that the model follows"
    ]  # fmt: skip
    bare = replace(judgement(), info=replace(INFO, references={"operator": 9.0}))
    assert "return of operator" in str(bare)


def recorded(tmp_path):
    generator = np.random.default_rng(0)
    space = velocirl.make("Pendulum-v1")
    info = DatasetInfo(space.observation_space, space.action_space, environment="Pendulum-v1", constraints=("spin",))
    episodes = [
        {
            "observations": generator.uniform(-1, 1, (11, 3)),
            "actions": generator.uniform(-2, 2, (10, 1)),
            "rewards": generator.uniform(-1, 0, 10),
            "costs": generator.integers(0, 2, (10, 1)),
        }
        for _ in range(8)
    ]
    return Dataset.from_episodes(episodes, info).save(tmp_path / "pendulum.vds")


def test_all_of_it_from_a_file_without_a_step(tmp_path):
    told = []
    found = velocirl.judge_offline(
        lambda seen: -seen[2:], recorded(tmp_path), progress=lambda *now: told.append(now), **QUICK
    )
    assert told == [(0, 3), (1, 3), (2, 3)]  # its return, the check, its cost
    assert found.cost is not None
    assert found.cost.behaviour_return == pytest.approx(Dataset.load(tmp_path / "pendulum.vds").costs.sum() / 8)
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["return"]["horizon"] == 10


def test_a_policy_of_other_spaces_is_refused(tmp_path):
    agent = velocirl.DQN("CartPole-v1", device="python")
    with pytest.raises(ValueError, match="and those of the policy"):
        velocirl.judge_offline(agent, recorded(tmp_path), **QUICK)
