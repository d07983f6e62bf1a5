"""An emulated cloud: workers and PS that are real processes with real messages, and wait instead of computing."""
