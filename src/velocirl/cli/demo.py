"""`velocirl demo`: what it is good for, in half a minute."""


def demo() -> None:
    """Show a fleet at work, beside Gymnasium's."""
