"""Measures reading, from a file to a KeyedJaggedTensor.

benchmark     the command: passes over each file
sources       the files, their decoders, a model of their columns
sample_files  writes files in formats that users have
"""
