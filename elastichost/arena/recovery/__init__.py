"""What a kill must not tear.

Modules:
    staging   row pushes that wait for their batch to be committed
    undo      makes the application of staged pushes all or nothing
"""
