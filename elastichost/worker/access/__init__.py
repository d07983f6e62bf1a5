"""How a worker reaches rows.

Modules:
    rows                    from a batch of ids to a batch of rows, in the prefetch thread
    direct, served, mixed   in the mapped arena, by messages, or by place
    access_router           which rows of a batch are used in place
    row_channels            conversations about rows
    key_dedup               the distinct keys of a batch
"""
