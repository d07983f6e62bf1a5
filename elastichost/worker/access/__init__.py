"""How a worker reaches the embedding rows of a batch.

Modules:
    rows                                   turns a batch of ids into a batch of rows, in the prefetch thread
    direct_rows, served_rows, mixed_rows   the same for each kind of access
    direct, served, mixed                  lookups of the model: in the mapped arena, in pulled rows, or in both
    residence                              where the rows are while a worker trains: in the arena, or on its GPU
    access_router                          decides which rows of a batch are used in place
    row_channels                           sends pulls and pushes to the parameter servers
    key_dedup                              finds the distinct keys of a batch
"""
