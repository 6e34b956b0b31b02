"""What was experienced, kept for learning."""
