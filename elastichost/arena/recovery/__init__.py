"""Files in an arena that tell a successor what its predecessor had done when it was killed.

Modules:
    reserve            memory of these files, which is kept and which a successor finds
    staging            row pushes that wait for the commit of their batch
    undo               the old values of rows, which make the application of staged pushes all or nothing
    device_residence   the record of a model that resides in memory of a GPU
"""
