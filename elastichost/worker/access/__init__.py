"""How a worker reaches rows.

Modules:
    rows                                   from a batch of ids to a batch of rows, in the prefetch thread
    direct_rows, served_rows, mixed_rows   the same with each kind of access
    direct, served, mixed                  lookups: in the mapped arena, of pulled rows, or by place
    access_router                          which rows of a batch are used in place
    row_channels                           conversations about rows
    key_dedup                              the distinct keys of a batch
"""
