"""Colors for quantities in the images of all plants."""

from velocirl.engine.canvas import Color


def blended(low: Color, high: Color, share: float) -> Color:
    """Blend two colors: the first at a share of 0 or below, the second at 1 or above."""
    weight = min(max(float(share), 0.0), 1.0)
    red, green, blue = (round(a + weight * (b - a)) for a, b in zip(low, high, strict=True))
    return red, green, blue
