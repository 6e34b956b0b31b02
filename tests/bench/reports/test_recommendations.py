import dataclasses
import re

import pytest
from planted_report import MACHINE, measured, planted_baseline, planted_changes, planted_report, result

from velocirl.bench.machine.cost import Cost
from velocirl.bench.reports.recommendations import WEIGHTS, recommend
from velocirl.bench.units import MEGABYTES, ROWS, SECONDS, STEPS


def of(*results, **given):
    return recommend(planted_report(results=list(results), **given))


def test_no_recommendation_without_a_number():
    found = recommend(planted_report())
    assert len(found) > 5
    assert all(re.search(r"\d", one.measurement) for one in found)
    assert [one.weight for one in found] == sorted((one.weight for one in found), key=WEIGHTS.index)
    assert len({one.text for one in found}) == len(found)


def test_nothing_is_said_of_a_run_in_which_nothing_stands_out():
    assert of(result("calm", "vector", STEPS, [measured("velocirl", 1e6)])) == []


def test_threads_that_slow_down_are_advised_against_with_both_figures():
    slower = [measured("velocirl, 1 thread", 100e6), measured("velocirl, 2 threads", 80e6, seed=1)]
    (one,) = of(result("steps", "vector", STEPS, slower))
    assert one.text.startswith("Use threads=1")
    assert "0.80 times" in one.measurement
    assert "80.0M steps/s against 100M steps/s" in one.measurement
    in_seconds = [measured("1 thread", 1.0), measured("2 threads", 2.0, seed=1)]
    (one,) = of(result("steps", "vector", SECONDS, in_seconds))
    assert "0.50 times" in one.measurement


@pytest.mark.parametrize(("factor", "texts"), [(1.9, []), (1.01, []), (1.1, ["Do not expect 2 times"])])
def test_threads_that_help(factor, texts):
    contestants = [measured("1 thread", 1e6, 0.001), measured("2 threads", factor * 1e6, 0.001, seed=1)]
    found = of(result("steps", "vector", STEPS, contestants))
    assert [one.text[: len(text)] for one, text in zip(found, texts, strict=True)] == texts


def test_a_peer_that_is_better_is_named_once():
    contestants = [
        measured("velocirl", 1e6),
        measured("torch", 2e6, seed=1, peer=True),
        measured("NumPy", 1e3, peer=True),
    ]
    (one,) = of(result("forward", "network", ROWS, contestants))
    assert one.text == "Look at what torch does better in forward"
    assert "0.50 times" in one.measurement


def test_a_cold_start_beside_a_warm_one():
    (one,) = of(result("start", "compile", SECONDS, [measured("cold cache", 4.0), measured("warm cache", 0.5)]))
    assert "VELOCIRL_HOME" in one.text
    assert one.measurement == "start: 4.00 s cold, 500 ms warm"
    assert of(result("start", "compile", SECONDS, [measured("cold cache", 0.55), measured("warm cache", 0.5)])) == []


def test_the_largest_phase_and_what_it_could_give():
    phases = {"phase:rollout": 0.25, "phase:update": 0.75, "phase:update/optimiser": 0.5}
    metadata = {**phases, "minibatch_size": 64, "num_envs": 64, "horizon": 128}
    found = of(result("ppo_wide", "training", STEPS, [measured("velocirl", 1e6)], metadata=metadata))
    assert any("begin with update/optimiser" in one.text and "50%" in one.measurement for one in found)
    assert any("2.00 times the speed" in one.measurement for one in found)
    # What a profile advises, a report does too.
    assert any("--minibatch-size 128" in one.text and "update/optimiser takes 50%" in one.measurement for one in found)


def test_regressions_come_first_with_their_size():
    report, baseline = planted_report(), planted_baseline()
    found = recommend(report, planted_changes(report, baseline))
    assert found[0].text == "Find what made ppo_4_epochs worse since the baseline"
    assert found[0].weight == "act"
    assert re.search(r"velocirl, 1 thread: -15\.3% \(-1.*velocirl, 2 threads: -15\.3%", found[0].measurement)
    assert any("gae_4096 worse" in one.text and one.weight == "try" for one in found)
    assert not any("dqn_cartpole worse" in one.text for one in found)


def test_noise_and_company_ask_for_another_run():
    busy = dataclasses.replace(MACHINE, load=3.5)
    found = of(result("shaky", "vector", STEPS, [measured("velocirl", 1e6, 0.5)]), machine=busy)
    assert [one.weight for one in found] == ["act", "try"]
    assert "load average 3.50 on 2 cores" in found[0].measurement
    assert found[1].text.endswith("velocirl bench shaky")


def test_a_key_figure_that_is_alarming_comes_first():
    found = of(result("episode_memory", "memory", MEGABYTES, [measured("an episode", 900.0, 0.0)]))
    assert [one.weight for one in found] == ["act"]
    assert "900 MB" in found[0].measurement
    assert "> 500 MB" in found[0].measurement


def test_what_is_far_below_the_limit_is_named_with_its_bound():
    slow = measured("velocirl", 1e5, cost=Cost(operations=1e4, bytes=1.0))  # 1 of 75 GFLOP/s
    faster = measured("velocirl", 4e5, cost=Cost(operations=1e4, bytes=1.0))
    found = of(result("slow", "network", ROWS, [slow]), result("faster", "network", ROWS, [faster]))
    assert len(found) == 1
    assert found[0].text.startswith("Give slow more rows")
    assert "1.3% of what arithmetic allows" in found[0].measurement
