"""A report of benchmarks that nobody ran: every section of a page has something to show, and all figures are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from velocirl.bench.comparison import difference, ratio, value
from velocirl.bench.history.rows import points_of
from velocirl.bench.history.runs import History
from velocirl.bench.judging import judge
from velocirl.bench.machine.cost import Cost
from velocirl.bench.machine.facts import Machine
from velocirl.bench.machine.peaks import Peak, Peaks
from velocirl.bench.measuring import THOROUGH
from velocirl.bench.regression import Thresholds, compare
from velocirl.bench.results import Finding, Measured, Report, Result
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import BYTES, MEGABYTES, ROWS, SECONDS, STEPS, Unit

ROUNDS = 15
HOSTILE = "\"'><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>&amp;"
MACHINE = Machine(
    "AMD EPYC 9654 96-Core Processor", 2, 24 * 2**30, "Linux 6.8", 0.31, "1e93572c0ffee" * 3,
    {"python": "3.11.7", "velocirl": "0.7.0", "numpy": "2.4.6", "numba": "0.65.0", "envpool": "not installed"},
)  # fmt: skip
PEAKS = Peaks((Peak("cpu", 1, 75e9, 12e9), Peak("cpu", 2, 148e9, 19e9)))
SHARES = {
    "rollout": 0.42, "rollout/policy": 0.19, "rollout/environment": 0.17, "rollout/buffer": 0.04, "estimate": 0.03,
    "update": 0.55, "update/gather": 0.05, "update/forward": 0.17, "update/loss": 0.03, "update/backward": 0.21,
    "update/optimiser": 0.04, "update/waiting": 0.03,
}  # fmt: skip


def samples(median, spread=0.01, *, seed=0):
    """Samples around a median; an odd number, so that the middle one is it."""
    noise = np.random.default_rng(seed).normal(0.0, spread, ROUNDS)
    return tuple((median * (1.0 + noise - np.median(noise))).tolist())


def measured(name, median, spread=0.01, *, seed=0, **given):
    """One contestant."""
    return Measured(name, samples(median, spread, seed=seed), 1000, **given)


def result(name, category, unit, contestants, claims=(), *, title="", notes="", **given):
    """One benchmark, judged as any is."""
    findings = tuple(judge(claim, contestants, unit) for claim in claims)
    reference = samples(5e-3, 0.004, seed=9)
    told = title or name.replace("_", " ").capitalize()
    return Result(name, category, told, notes, unit, tuple(contestants), findings, 12.5, reference, **given)


def planted_results():
    """Benchmarks of every category, good ones and bad ones."""
    one, two, jax = "velocirl, 1 thread", "velocirl, 2 threads", "JAX, one jitted program"
    return [
        result(
            "first_step",
            "compile",
            SECONDS,
            [
                measured("import numba, gymnasium", 0.61),
                measured("first step, warm cache", 0.93),
                measured("first step, cold cache", 3.4),
            ],
            [difference("first step, warm cache", "import numba, gymnasium", at_most=0.5)],
            title="Fresh process to the first step of 4096 CartPoles",
            notes="Whole processes are timed, so each figure holds Python's own start; differences do not.",
        ),
        result(
            "training_start",
            "compile",
            SECONDS,
            [measured("cold cache", 7.2), measured("warm cache", 0.41)],
            [value("cold cache", at_most=8.0)],
        ),
        result(
            "single_step",
            "environment",
            SECONDS,
            [measured("velocirl", 2.1e-6), measured("Gymnasium", 4.9e-6, seed=1, peer=True)],
            [ratio("velocirl", "Gymnasium", at_least=2.0)],
        ),
        result(
            "cartpole_4096",
            "vector",
            STEPS,
            [
                measured(one, 118e6, cost=Cost(40, 60)),
                measured(two, 96e6, 0.14, seed=2, cost=Cost(40, 60, cores=2)),
                measured("Gymnasium, vectorised", 11e6, seed=3, peer=True),
                Measured("EnvPool", unavailable="envpool is not installed", peer=True),
            ],
            [
                ratio(one, "Gymnasium, vectorised", at_least=3.0),
                ratio(two, "Gymnasium, vectorised", at_least=5.0),
                ratio(one, "EnvPool", at_least=40.0),
            ],
            title="CartPole-v1 through VectorEnv.step, 4096 copies",
            notes="Gymnasium steps all copies at once on arrays. EnvPool chooses its threads by itself.",
        ),
        result(
            "random_loop",
            "environment",
            STEPS,
            [measured(one, 210e6, cost=Cost(40, 48)), measured(two, 188e6, seed=4, cost=Cost(40, 48, cores=2))],
            [value(one, at_least=2e8)],
            title="CartPole-v1, random actions, fused",
        ),
        result(
            "predict_one",
            "network",
            SECONDS,
            [measured("velocirl", 6.4e-6), measured("Stable-Baselines3", 210e-6, seed=5, peer=True)],
            [value("velocirl", at_most=1e-5), ratio("velocirl", "Stable-Baselines3")],
            title="The action for one observation of CartPole-v1, MLP 64x64",
        ),
        result(
            "network_256",
            "network",
            ROWS,
            [measured("velocirl", 1.9e5, cost=Cost(2.8e5, 1.5e3)), measured("torch", 2.4e5, seed=6, peer=True)],
            [ratio("velocirl", "torch", at_least=1.0)],
            title="Forward and backward of an MLP 256x256, 64 rows",
        ),
        result(
            "gae_4096",
            "learning",
            STEPS,
            [measured("velocirl, 1 thread", 6.1e8, cost=Cost(8, 17)), measured("NumPy", 1.1e8, seed=7, peer=True)],
            [ratio("velocirl, 1 thread", "NumPy")],
            title="Generalised advantage estimation, 4096 copies",
        ),
        result(
            "ppo_4_epochs",
            "training",
            STEPS,
            [
                measured(one, 1.31e6, cost=Cost(3.4e4, 400)),
                measured(two, 2.24e6, seed=8, cost=Cost(3.4e4, 400, cores=2)),
                measured(jax, 1.02e6, seed=9, peer=True),
                measured("Stable-Baselines3", 4.1e3, seed=10, peer=True),
            ],
            [ratio(one, jax, at_least=1.2), ratio(two, jax, at_least=2.0), ratio(one, "Stable-Baselines3")],
            title="PPO on CartPole-v1, 4096 copies, 4 epochs",
            metadata={
                "environment": "CartPole-v1",
                "num_envs": 64,
                **{f"phase:{path}": share for path, share in SHARES.items()},
            },
        ),
        result(
            "dqn_cartpole",
            "training",
            STEPS,
            [measured("velocirl", 5.2e4), measured("Stable-Baselines3", 1.3e3, seed=11, peer=True)],
            [ratio("velocirl", "Stable-Baselines3", at_least=10.0)],
            title="DQN on CartPole-v1",
            metadata={
                "phase:rollout": 0.3,
                "phase:update": 0.7,
                "phase:update/sample": 0.2,
                "phase:update/forward": 0.35,
            },
        ),
        result(
            "episode_memory",
            "memory",
            MEGABYTES,
            [measured("an episode of CartPole-v1", 140.0, 0.0)],
            [value("an episode of CartPole-v1", at_most=100.0)],
            title="Peak memory of an episode",
        ),
        result(
            "bytes_per_copy",
            "memory",
            BYTES,
            [measured("arrays of the fleet", 138.0, 0.0)],
            [value("arrays of the fleet", at_most=256.0)],
            title="Memory of one copy of CartPole-v1",
        ),
        result(
            "q_learning_threads",
            "scaling",
            STEPS,
            [measured("1 thread", 9.7e6), measured("2 threads", 11.2e6, seed=12)],
            title="Q-learning of TicTacToe by threads",
        ),
        result(
            "broken",
            "scaling",
            STEPS,
            [],
            error="RuntimeError: the workers did not answer within 30 s",
            title="Ranks that do not answer",
        ),
        result(
            "cuda_loop",
            "device",
            STEPS,
            [Measured("velocirl, fused", unavailable="no CUDA device")],
            [value("velocirl, fused", at_least=12e9)],
            title="CartPole-v1 on one CUDA device",
        ),
        result(
            "q_learning",
            "training",
            STEPS,
            [measured("velocirl", 9.9e6)],
            title="Q-learning of FrozenLake",
            interrupted=True,
        ),
    ]


def planted_report(**given):
    """The whole report; whatever is given replaces a field of it."""
    fields = {"results": planted_results(), "peaks": PEAKS, "complete": False, "machine": MACHINE, **given}
    return Report("velocirl bench --peers --html report.html", "2026-11-16T00:30:00+00:00", settings=THOROUGH, **fields)


def planted_baseline():
    """An earlier run, in which some were faster and some were slower."""
    factors = {"ppo_4_epochs": 1.18, "gae_4096": 1.07, "dqn_cartpole": 0.8}
    earlier = []
    for one in planted_results():
        factor = factors.get(one.name, 1.0)
        changed = [replace(c, samples=tuple(factor * sample for sample in c.samples)) for c in one.contestants]
        earlier.append(result(one.name, one.category, one.unit, changed, title=one.title))
    return planted_report(results=earlier, complete=True)


def planted_changes(report, baseline):
    """What is found between the two."""
    return compare(baseline, report, Thresholds()).changes


def planted_history():
    """Fifteen runs, in no file, of which PPO is slower from the ninth on and GAE faster from the fifth on."""
    shown = [one for one in planted_results() if one.name in ("ppo_4_epochs", "gae_4096", "single_step")]
    runs = []
    for run in range(15):
        factors = {"ppo_4_epochs": 1.0 if run < 8 else 0.85, "gae_4096": 0.8 if run < 4 else 1.0}
        wobble = 1.0 + 0.012 * np.random.default_rng(run).normal()
        results = []
        for one in shown:
            factor = factors.get(one.name, 1.0) * wobble
            contestants = [replace(c, samples=tuple(factor * s for s in c.samples)) for c in one.contestants]
            results.append(replace(one, contestants=tuple(contestants)))
        report = planted_report(results=results, machine=replace(MACHINE, commit=f"{run:02d}" * 20), complete=True)
        runs.append(points_of(replace(report, started=f"2026-10-{run + 1:02d}T12:00:00+00:00")))
    return History(Path("nowhere"), runs)


def hostile_report():
    """A report that says something nasty wherever it can."""
    unit = Unit("<b>", True, "{number} <b>")
    contestants = (
        Measured(HOSTILE, (1.0, 2.0, 3.0), 1),
        Measured(f"peer {HOSTILE}", (1.0, 2.0, 3.0), 1, peer=True),
        Measured(f"gone {HOSTILE}", unavailable=HOSTILE),
    )
    finding = Finding(HOSTILE, unit, 1.0, False, Estimate(1.0, 1.0, 1.0), HOSTILE)
    metadata = {f"phase:{HOSTILE}": 0.5, "phase:rollout": 0.5}
    one = replace(
        result("a", "b", unit, contestants), name=HOSTILE, category=HOSTILE, title=HOSTILE, notes=HOSTILE,
        findings=(finding,), error=HOSTILE, metadata=metadata, reference=(),
    )  # fmt: skip
    report = planted_report(results=[one])
    machine = replace(report.machine, processor=HOSTILE, commit=HOSTILE, versions={HOSTILE: HOSTILE}, gpu=HOSTILE)
    return replace(report, command=HOSTILE, started=HOSTILE, machine=machine)
