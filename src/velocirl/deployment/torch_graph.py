"""Torch module as nodes of an ONNX graph, by torch's own exporter."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import torch
from onnx import compose
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from velocirl.deployment.controller import Module

TRACED, TRIED = 2, 3  # rows to trace a module with, and rows to compare the graph with
TOLERANCE = 1e-3


class _Rows(nn.Module):
    """Module as a function of encoded input rows."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.module, self._network = network.module, network

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs (rows, outputs)."""
        return self._network.forward(rows)[0]


def module_graph(policy: Module, source: str, result: str, opset: int) -> Any:
    """Return the graph from the tensor `source` (rows, inputs) to `result` (rows, outputs)."""
    network = policy.network
    buffer: Any = io.BytesIO()
    rows = torch.zeros(TRACED, network.encoding.inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the older exporter: the newer one needs more packages
            torch.onnx.export(
                _Rows(network).eval(), (rows,), buffer, input_names=[source], output_names=[result],
                dynamic_axes={source: {0: "rows"}, result: {0: "rows"}}, opset_version=opset, dynamo=False,
            )  # fmt: skip
    except Exception as error:
        raise ValueError(
            f"torch cannot write {policy.described} as ONNX: {' '.join(str(error).split())[:300]}"
        ) from error
    model = onnx.load_from_string(buffer.getvalue())
    _require_same(policy, model, source)
    return compose.add_prefix(model, "module/", rename_inputs=False, rename_outputs=False).graph


def _require_same(policy: Module, model: Any, source: str) -> None:
    """Raise if a graph differs from its module: tracing freezes whatever depends on values in Python."""
    network = policy.network
    rows = np.random.default_rng(0).random((TRIED, network.encoding.inputs), np.float32)
    theirs = network.forward(torch.from_numpy(rows))[0].detach().numpy()
    try:
        (ours,) = ReferenceEvaluator(model).run(None, {source: rows})
        same = np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
    except Exception:  # noqa: BLE001 - such as shapes that do not fit
        same = False
    if not same:
        raise ValueError(
            f"{policy.described} as torch writes it to ONNX does not compute what it computes here, so nothing is"
            " written: its forward() may depend on the number of rows, as by len(), or on values, as by if"
        )
