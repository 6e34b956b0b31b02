"""d3rlpy reads our data sets. It needs an environment of its own, whose python VELOCIRL_D3RLPY_PYTHON names."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import velocirl
from velocirl.datasets.minari.exporting import export_minari

PYTHON = os.environ.get("VELOCIRL_D3RLPY_PYTHON")
SCRIPT = Path(__file__).parents[3] / "tools" / "d3rlpy_reads.py"


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="VELOCIRL_D3RLPY_PYTHON names no python that has d3rlpy")
def test_d3rlpy_reads_and_learns_from_ours(tmp_path):
    native = velocirl.engine.registry.find("ChemicalReactor-v0")
    options = {"steps": 400, "device": "python", "references": {}, "noise": 0.1}
    data = velocirl.record_dataset(native.controller, "ChemicalReactor-v0", **options)
    path = export_minari(data, tmp_path / "reactor-v0")
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(PYTHON), str(SCRIPT), str(path), "--updates", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env=own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    episodes = [data.episode(k) for k in range(data.episodes)]
    assert (found["episodes"], found["steps"]) == (data.episodes, len(data))
    assert found["terminated"] == [one.terminated for one in episodes]
    np.testing.assert_allclose(found["returns"], data.returns(), rtol=1e-5)
    np.testing.assert_allclose(found["observation_sums"], [one.observations[:-1].sum(dtype=float) for one in episodes])
    np.testing.assert_allclose(found["action_sums"], [one.actions.sum(dtype=float) for one in episodes])
    assert len(found["action"]) == data.actions.shape[1]
