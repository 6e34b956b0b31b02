"""What a shell or a CI system has set, and no test may notice: signals that it ignores, variables of velocirl.

Shells without job control start what is in the background with SIGINT ignored, and nohup with SIGHUP; what tests
start would inherit that. A signal that is handled here is at its default there; nohup's still ends nothing.
"""

import os
import signal

GIVEN = {"VELOCIRL_D3RLPY_PYTHON"}  # says what there is to test with

signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
for name in [name for name in os.environ if name.startswith("VELOCIRL_") and name not in GIVEN]:
    del os.environ[name]
