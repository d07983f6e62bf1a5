"""One module per paper, and `layers` for what they share."""
