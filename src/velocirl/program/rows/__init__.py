"""Row functions: observing, acting, and recording a step of one environment."""
