"""Kernels over embedding rows.

Modules:
    row_kernels               initial weights, stamps of seen rows, rows of fixed tables
    bag_kernels, bag_chains   pooled lookup; distinct rows of a batch and the sums of their gradients
    bag_updates               optimizer steps fused with the backward pass: one update for each distinct row
    update_rates              the numbers of each embedding's optimizer step
    lanes                     vectors of 4 or 16 float32
    tiles                     products of bfloat16 tiles, on CPUs with AMX
    lines, line_kernels       rows ("lines") of many embeddings in one flat array ("frame")
    place_kernels             batches whose rows lie partly in the arena and partly among pulled rows
"""
