"""A search with its trials together on this host, beside the same trials one after another.

benchmark   the command
trials      the job of the search, and one measurement of each arm
"""
