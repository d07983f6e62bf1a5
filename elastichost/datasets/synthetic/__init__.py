"""Generated data whose labels follow a known model ("planted truth").

Modules:
    reader   generates batches of any range of samples
    kernel   computes each sample as a pure function of seed and index
"""
