"""MuJoCo rendering without a display: through EGL or OSMesa, whichever works."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import gymnasium

CHOICE = "MUJOCO_GL"  # environment variable that selects the backend of MuJoCo's renderers
DISPLAYS = "DISPLAY", "WAYLAND_DISPLAY"
BACKENDS = {"egl": "EGL", "osmesa": "OSMesa"}
# In its own process: libraries loaded by one backend prevent the next from working, and drivers may crash.
TRIAL = """
from mujoco.{backend} import GLContext
context = GLContext(8, 8)
context.make_current()
from OpenGL import GL
GL.glGetString(GL.GL_VERSION)[0]
"""
LONGEST = 60  # seconds of a trial


def choose_backend(env: gymnasium.Env, render_mode: str | None, name: str) -> None:
    """Select a rendering backend for a MuJoCo environment without a display.

    Raises ValueError with installation advice if no backend works. The choice holds for the whole process, by the
    variable `MUJOCO_GL`; a value that is already set is kept.
    """
    needed = render_mode not in (None, "human", "ansi") and hasattr(env.unwrapped, "mujoco_renderer")
    if not needed or not sys.platform.startswith("linux") or any(map(os.environ.get, (CHOICE, *DISPLAYS))):
        return
    why = {}
    for backend in BACKENDS:
        fault = _fault_of(backend)
        if fault is None:
            os.environ[CHOICE] = backend
            return
        why[BACKENDS[backend]] = fault
    reasons = ", ".join(f"{one}: {fault}" for one, fault in why.items())
    raise ValueError(
        f"{name} draws with OpenGL, and without a display neither EGL nor OSMesa works ({reasons}): install one, as by"
        " apt install libegl1 libgl1-mesa-dri, or apt install libosmesa6, and pip install PyOpenGL"
    )


@cache
def _fault_of(backend: str) -> str | None:
    """Return the reason why a backend cannot render, the last line of its error; None if it works."""
    settings = {**os.environ, CHOICE: backend, "PYOPENGL_PLATFORM": backend}
    try:
        trial = subprocess.run(  # noqa: S603 - this Python, and a constant
            [sys.executable, "-c", TRIAL.format(backend=backend)],
            env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    if trial.returncode == 0:
        return None
    said = [line.strip() for line in trial.stderr.splitlines() if line.strip() and not line.startswith(" ")]
    errors = [line for line in said if ":" in line and line.partition(":")[0].endswith(("Error", "Exception"))]
    return (errors or said or [f"exit code {trial.returncode}"])[-1][:100]
