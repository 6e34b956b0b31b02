"""Preprocessing of game images, rewards and lives before the agent receives them."""
