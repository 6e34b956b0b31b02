"""A benchmark of your own, beside a peer in the same run.

python examples/own_benchmark.py                            # measure once, quickly
velocirl bench examples/own_benchmark.py --save before      # measure and keep this run,
velocirl bench examples/own_benchmark.py --compare before   # and compare a later one with it
"""

import gymnasium

import velocirl
from velocirl.bench import Comparison, benchmark, ratio
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS
from velocirl.cli.main import main

COPIES = 256


@benchmark(category="environment")
def pendulum_steps():
    """Steps of Pendulum, 256 copies."""
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl": vector_steps(lambda: velocirl.make_vec("Pendulum-v1", COPIES)),
            "Gymnasium SyncVectorEnv": vector_steps(
                lambda: gymnasium.make_vec("Pendulum-v1", COPIES, vectorization_mode="sync")
            ),
        },
        claims=(ratio("velocirl", "Gymnasium SyncVectorEnv", at_least=50.0),),
        peers=("Gymnasium SyncVectorEnv",),
    )


if __name__ == "__main__":
    main(["bench", "pendulum_steps", "--peers", "--quick"])
