"""What is wrong with an environment, found before it is compiled or told afterwards, by its line."""
