"""A real browser without a window, where there is one, for the tests of pages."""

import os
import shutil
import signal
import subprocess

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(address, *options):
    """The browser's output and complaints; it and all its processes end with the call."""
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=10000",
        f"--user-data-dir={address.parent / 'profile'}", *options, address.as_uri(),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        output, complaints = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, complaints.decode()
    return output.decode(), [line for line in complaints.decode().splitlines() if "CONSOLE" in line]
