"""Virtual time: what a job would do on processes that nobody has to start."""
