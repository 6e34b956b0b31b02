"""What the command `velocirl` starts with, outside of the package, whose import takes a second.

Ctrl-C during that second ends the command as it does later, without a traceback.
"""


def main() -> None:
    """Run the command."""
    try:
        from velocirl.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
