"""GPU utilization as nvidia-smi reports it, read in the background so that training never waits for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading

PROGRAM = "nvidia-smi"
EVERY = 2  # seconds between two reports
PATIENCE = 2.0  # seconds to wait for the thread to end
MEGABYTE = 2**20


class GPUWatch:
    """One nvidia-smi process that reports every other second, and a thread that reads it; `close` ends both.

    Without nvidia-smi, or without an answer from it, the values are None.
    """

    def __init__(self) -> None:
        self.latest: tuple[float | None, int | None] = (None, None)  # utilization in percent, memory in use in bytes
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._lock = threading.Lock()  # between starting the program and closing
        self._thread = threading.Thread(target=self._listen, name="velocirl-gpu-watch", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process id of nvidia-smi, which does not count as training."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process; the last values stay. Further calls do nothing."""
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
                    process_group=0,  # keeps Ctrl-C from reaching it
                )
            with self._process as process:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                for line in process.stdout:
                    self.latest = parse(line)
        if not self._closed:
            self.latest = (None, None)  # it ended by itself: its last values are outdated


def visible_gpu() -> str:
    """Return the index or name of the GPU used for training: the first one visible to this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


def parse(line: str) -> tuple[float | None, int | None]:
    """Parse utilization and memory from a line of nvidia-smi; an unknown value is None."""
    percent, _, megabytes = line.partition(",")
    memory = _number(megabytes)
    return _number(percent), None if memory is None else int(memory * MEGABYTE)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # [N/A], [Not Supported], an error message
        return None
    return value if 0.0 <= value < 1e12 else None
