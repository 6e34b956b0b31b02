import json
import math

from planted_tuning import measured, trial

from velocirl.bench.machine.facts import this_machine
from velocirl.bench.tuning.choosing import choose
from velocirl.bench.tuning.document import document_of
from velocirl.bench.tuning.evidence import goal_of
from velocirl.bench.tuning.tuner import Plan, Tuner
from velocirl.engine.disk.writing import strict_json


def test_everything_measured_is_in_the_document_as_strict_json():
    tuner = Tuner(lambda values: None, Plan({"hidden": (64,)}, 1000), None)
    fast, stuck = measured(300.0, [100.0] * 3, name=64), measured(200.0, name=128)
    stuck.trials = [trial(-math.inf)] * 3
    tuner.rows = [measured(100.0, [100.0] * 3), fast, stuck]
    tuner.goal = goal_of(tuner.reference, 0.02)
    choice = choose(tuner.rows, tuner.goal)
    made = document_of(tuner, choice, "A-v0", "ppo", this_machine(), partial=False)
    found = json.loads(strict_json(made))
    assert (found["environment"], found["algorithm"], found["chosen"]) == ("A-v0", "ppo", "num_envs=64")
    assert found["given"] == {"hidden": [64]}
    assert found["goal"] == {"untrained": 0.0, "reached": 100.0, "tolerance": 2.0, "quality": 98.0}
    reference, chosen, worse = found["candidates"]
    assert chosen["learning"] == {"num_envs": 64}
    assert chosen["samples"] == fast.speeds
    assert chosen["times_as_soon"]["median"] == 3.0
    assert [one["returns"][-1] for one in chosen["trials"]] == [100.0] * 3
    assert worse["trials"][0]["returns"][-1] is None
    assert (reference["verdict"], chosen["verdict"], worse["verdict"]) == ("reference", "accepted", "worse")


def test_what_was_interrupted_chose_nothing():
    tuner = Tuner(lambda values: None, Plan({}, 1000), None)
    empty = document_of(tuner, None, "A-v0", "ppo", this_machine(), partial=True)
    assert (empty["partial"], empty["chosen"], empty["candidates"]) == (True, None, [])
    tuner.rows = [measured(100.0), measured(300.0, name=1, neutral=True)]
    some = document_of(tuner, choose(tuner.rows, None), "A-v0", "ppo", this_machine(), partial=True)
    assert (some["chosen"], len(some["candidates"])) == (None, 2)
