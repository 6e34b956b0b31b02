"""Jobs of ranks keep their runs apart, and end with the test that started them."""

from ranks import data_home, nothing_left  # noqa: F401 - fixtures
