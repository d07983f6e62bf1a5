"""`elastichost report`: one file that tells what a run did and what the tuner knew."""
