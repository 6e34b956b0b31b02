"""Offline policy evaluation: evaluation of a policy by recorded data, before deployment to the plant."""
