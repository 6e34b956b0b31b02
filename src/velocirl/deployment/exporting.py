"""`velocirl.export`: a policy as a file that runs without velocirl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from velocirl.controllers.pid import PID
from velocirl.deployment.c_file import c_text
from velocirl.deployment.c_words import identifier
from velocirl.deployment.controller import Controller
from velocirl.deployment.deciding import require_same
from velocirl.deployment.json_file import json_text
from velocirl.deployment.pid_file import pid_text
from velocirl.deployment.quantising import quantised
from velocirl.deployment.reading import read_controller
from velocirl.engine.disk.writing import write_shared
from velocirl.engine.naming import nearest
from velocirl.training.agent import Agent, load

WEIGHTS = ("float32", "int8")


def _as_c(controller: Controller, name: str | None) -> bytes:
    return c_text(controller, name).encode()


def _as_json(controller: Controller, name: str | None) -> bytes:  # noqa: ARG001 - as C
    return json_text(controller).encode()


def _as_onnx(controller: Controller, name: str | None) -> bytes:
    from velocirl.deployment.onnx_file import onnx_bytes  # needs onnx

    return onnx_bytes(controller, name)


WRITERS: dict[str, Callable[[Controller, str | None], bytes]] = {"onnx": _as_onnx, "c": _as_c, "json": _as_json}


def export(
    agent: Agent | PID | str | Path,
    path: str | Path | None = None,
    *,
    format: str | None = None,  # noqa: A002 - what everybody calls it
    weights: str = "float32",
    name: str | None = None,
) -> Path:
    """Write the policy of an agent, or of a run or model, to a file that acts without velocirl. Returns its path.

    The format is `format` or the path's ending, .c, .onnx or .json. The default path is named after the environment.
    `weights="int8"` makes them a quarter of the size. `name` is the name of the function or graph, by default the
    environment's. The exported policy is deterministic. Before anything is written, the extracted controller is
    compared with the agent. A `PID` bound to its environment is written as C, with its state as a struct.
    """
    wanted = chosen_format(path, format)
    if weights not in WEIGHTS:
        raise ValueError(f"weights cannot be {weights!r}{nearest(weights, WEIGHTS)}")
    if path is not None and not Path(path).parent.is_dir():
        raise ValueError(f"there is no directory {Path(path).parent}")
    if isinstance(agent, PID):
        return _export_pid(agent, path, wanted, weights, name)
    if not isinstance(agent, Agent):
        agent = load(agent, memory=False)
    controller = read_controller(agent)
    content = WRITERS[wanted](quantised(controller) if weights == "int8" else controller, name)
    require_same(controller, agent)
    path = Path(f"{identifier(name or controller.environment)}.{wanted}") if path is None else Path(path)
    write_shared(path, [content])
    return path


def _export_pid(pid: PID, path: str | Path | None, wanted: str, weights: str, name: str | None) -> Path:
    """Write a PID as C; it has no weights and no other format."""
    if wanted != "c":
        raise ValueError(f"format={wanted!r} is for networks: export a PID as C, to a path that ends in .c")
    if weights != WEIGHTS[0]:
        raise ValueError(f"weights={weights!r} is for networks: leave it out for a PID")
    path = Path(f"{identifier(name or pid.layout.id)}.c") if path is None else Path(path)
    write_shared(path, [pid_text(pid, name).encode()])
    return path


def chosen_format(path: str | Path | None, format: str | None) -> str:  # noqa: A002
    """Return the requested format, given by name or by the ending of the path."""
    if format is None and path is None:
        raise ValueError(f"say in which format it is to be exported: {', '.join(WRITERS)}")
    found = Path(path or "").suffix.lower().removeprefix(".") if format is None else format
    if found not in WRITERS:
        what = f"{path} must end in .{', .'.join(WRITERS)}" if format is None else f"format cannot be {format!r}"
        raise ValueError(f"{what}{nearest(found, WRITERS) if format is not None else ', or say the format'}")
    return found
