"""What d3rlpy makes of a data set in Minari's layout; runs in an environment of its own, with d3rlpy and minari.

d3rlpy pins an older Gymnasium than ours, so it cannot be installed beside velocirl:

    python -m venv ~/d3rlpy && ~/d3rlpy/bin/pip install torch d3rlpy pillow
    ~/d3rlpy/bin/pip install --no-deps minari h5py
    velocirl dataset export reactor.vds --out reactor-v0
    ~/d3rlpy/bin/python tools/d3rlpy_reads.py reactor-v0 --updates 100

Prints what it read as one line of JSON, and trains its TD3+BC on it for some updates. d3rlpy's own `get_minari` is not
used: it puts the final observations of episodes among those that have an action.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import minari
import numpy as np


def read(path):
    """The episodes of a data set, and the same as d3rlpy learns from them."""
    import d3rlpy

    theirs = list(minari.MinariDataset(path / "data"))
    return theirs, d3rlpy.dataset.MDPDataset(
        observations=np.concatenate([one.observations[:-1] for one in theirs]).astype(np.float32),
        actions=np.concatenate([one.actions for one in theirs]),
        rewards=np.concatenate([one.rewards for one in theirs]),
        terminals=np.concatenate([one.terminations for one in theirs]).astype(np.float32),
        timeouts=np.concatenate([one.truncations for one in theirs]).astype(np.float32),
    )


def main():
    """Read, train, and say what was there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--updates", type=int, default=0)
    given = parser.parse_args()
    out, sys.stdout = sys.stdout, sys.stderr  # d3rlpy talks a lot
    import d3rlpy

    theirs, data = read(given.path)
    found = {
        "episodes": data.size(),
        "steps": sum(len(one) for one in data.episodes),
        "returns": [float(one.compute_return()) for one in data.episodes],
        "terminated": [bool(one.terminated) for one in data.episodes],
        "observation_sums": [float(np.sum(one.observations, dtype=np.float64)) for one in data.episodes],
        "action_sums": [float(np.sum(one.actions, dtype=np.float64)) for one in data.episodes],
    }
    if given.updates:
        options = {"batch_size": 32, "action_scaler": d3rlpy.preprocessing.MinMaxActionScaler()}
        learner = d3rlpy.algos.TD3PlusBCConfig(**options).create(device="cpu:0")
        no_files = d3rlpy.logging.NoopAdapterFactory()
        learner.fit(data, given.updates, given.updates, logger_adapter=no_files, show_progress=False)
        found["action"] = learner.predict(theirs[0].observations[:1].astype(np.float32))[0].tolist()
    print(json.dumps(found), file=out, flush=True)
    os._exit(0)  # what d3rlpy leaves running is of no interest


if __name__ == "__main__":
    main()
