"""Reading, from a file to a KeyedJaggedTensor.

benchmark     passes over each file; the command
sources       the files, their decoders, a model of their columns
sample_files  writes files in the shapes people have
"""
