"""Train d3rlpy on a data set in Minari's layout, and leave its greedy policy as a TorchScript file.

Runs in an environment of its own, as `d3rlpy_reads.py` says; `compare_offline.py` calls it with one JSON argument.
Prints the processor seconds of the training as one line of JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from d3rlpy_reads import read


def main():
    """Train as the argument says."""
    job, out = json.loads(sys.argv[1]), sys.stdout
    sys.stdout = sys.stderr  # d3rlpy talks a lot
    import d3rlpy

    torch.set_num_threads(1)
    d3rlpy.seed(job["seed"])
    _, data = read(Path(job["path"]))
    settings, rate = job["settings"], job["settings"]["learning_rate"]
    encoder = d3rlpy.models.VectorEncoderFactory(settings["hidden"])
    low, high = (np.array(job[name], np.float32) for name in ("low", "high"))
    common = {
        "observation_scaler": d3rlpy.preprocessing.StandardObservationScaler(),
        "action_scaler": d3rlpy.preprocessing.MinMaxActionScaler(minimum=low, maximum=high),
        "actor_learning_rate": rate, "critic_learning_rate": rate, "actor_encoder_factory": encoder,
        "critic_encoder_factory": encoder, "batch_size": settings["batch_size"], "gamma": settings["gamma"],
        "tau": settings["tau"],
    }  # fmt: skip
    if job["algorithm"] == "td3-bc":
        config = d3rlpy.algos.TD3PlusBCConfig(**common, alpha=settings["alpha"])
    elif job["algorithm"] == "iql":
        config = d3rlpy.algos.IQLConfig(
            **common, value_encoder_factory=encoder, expectile=settings["expectile"],
            weight_temp=settings["temperature"],
        )  # fmt: skip
    else:  # its weight of the gap is learnt unless that does not move; its squared errors are not halved, as ours are
        config = d3rlpy.algos.CQLConfig(
            **common, temp_learning_rate=rate, alpha_learning_rate=0.0, initial_alpha=1.0,
            conservative_weight=2 * settings["conservatism"], n_action_samples=settings["samples"],
        )  # fmt: skip
    learner, no_files = config.create(device="cpu:0"), d3rlpy.logging.NoopAdapterFactory()
    start = time.process_time()
    learner.fit(data, job["steps"], job["steps"], logger_adapter=no_files, show_progress=False)
    seconds = time.process_time() - start
    learner.save_policy(job["policy"])
    print(json.dumps({"seconds": seconds}), file=out, flush=True)
    os._exit(0)  # what d3rlpy leaves running is of no interest


if __name__ == "__main__":
    main()
