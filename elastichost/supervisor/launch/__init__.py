"""How processes come to be: the fork server and its client."""
