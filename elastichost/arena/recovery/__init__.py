"""Files of a parameter server that keep row updates atomic when the server is killed.

Modules:
    staging   row pushes that wait for the commit of their batch
    undo      the old values of rows, which make the application of staged pushes all or nothing
"""
