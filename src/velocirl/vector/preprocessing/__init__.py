"""What is done to the screens of games, and to their rewards and lives, before an agent sees them."""
