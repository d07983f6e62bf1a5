"""The input of a worker: what it reads ahead, over how many connections, within which memory, and how it is measured.

Modules:
    control      the knobs of one worker's input, its memory and its meters; shared by reader and pipeline
    settings     the knobs to begin with, and those that the job file fixes
    budget       the bytes that the input may hold ahead
    meter        CPU and waiting of one stage, strictly apart
    ordered      puts what arrives in any order back into its order; pure
    read_ahead   decodes the next units in threads
"""
