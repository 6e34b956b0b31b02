"""What a person names on a command line: environments, runs, models, controllers, and code that only a file names."""
