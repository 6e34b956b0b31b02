"""How busy the GPU is, as nvidia-smi says, asked in the background so that training never waits for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading

PROGRAM = "nvidia-smi"
EVERY = 2  # seconds between two answers
PATIENCE = 2.0  # seconds for its end
MEGABYTE = 2**20


class GPUWatch:
    """One nvidia-smi that answers every other second, and a thread that listens; both end by `close`.

    Where there is no nvidia-smi, or it does not answer, the figures are None.
    """

    def __init__(self) -> None:
        self.latest: tuple[float | None, int | None] = (None, None)  # use in percent, and bytes of memory in use
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._lock = threading.Lock()  # between starting the program and closing
        self._thread = threading.Thread(target=self._listen, name="velocirl-gpu-watch", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process of nvidia-smi, which is no part of training."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End it; the last figures stay. Calling it again does nothing."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._thread.join(PATIENCE)

    def _listen(self) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            return
        fields = "--query-gpu=utilization.gpu,memory.used"
        command = [program, fields, "--format=csv,noheader,nounits", f"--loop={EVERY}", f"--id={visible_gpu()}"]
        with contextlib.suppress(OSError):
            with self._lock:
                if self._closed:
                    return
                self._process = subprocess.Popen(  # noqa: S603 - nvidia-smi of this machine
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                    process_group=0,  # Ctrl-C is not meant for it
                )
            with self._process as process:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                for line in process.stdout:
                    self.latest = parse(line)
        if not self._closed:
            self.latest = (None, None)  # it ended by itself: what it said last is old


def visible_gpu() -> str:
    """The GPU on which training is, by its number or its name: the first one that this process may see."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def parse(line: str) -> tuple[float | None, int | None]:
    """Use and memory from a line of nvidia-smi; what it does not know is None."""
    percent, _, megabytes = line.partition(",")
    memory = _number(megabytes)
    return _number(percent), None if memory is None else int(memory * MEGABYTE)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # [N/A], [Not Supported], an error message
        return None
    return value if 0.0 <= value < 1e12 else None
