"""What a GPU gives: the step engine beside its peers.

Modules:
    engine          the step engine on random batches, with rows in memory of the GPU or of the host
    step_speed      milliseconds a step of the engine, for batch sizes and dims
"""
