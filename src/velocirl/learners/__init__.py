"""Learners: on-policy, off-policy and offline training, each written once for all devices."""
