"""Kernels over embedding rows.

Modules:
    row_kernels               initial weights, when a row was seen, rows of fixed tables
    bag_kernels, bag_chains   pooled lookup; distinct rows of a batch and the sums of their gradients
    bag_updates               the exact fused optimizers
    lanes                     several float32 at once
    lines, line_kernels       lines of many embeddings in one flat frame
    place_kernels             batches whose rows lie in two places
"""
