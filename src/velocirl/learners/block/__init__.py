"""The learner of CPU threads: a thread takes its rows block by block through all stages up to the next meeting."""
