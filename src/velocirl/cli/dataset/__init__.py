"""`velocirl dataset`: making, importing, checking, exporting and drawing data sets."""
