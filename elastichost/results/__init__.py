"""The results of a run: a plain torchrec model in a directory (`export`), and scores of a file (`predict`).

Modules:
    assemble           assembles the tensors of the model from the blocks of a checkpoint
    export             writes the directory
    safetensors_file   writes the tensors as a stream
    reader             loads an export; it is copied into every export and needs no elastichost
    predict            scores a file, in one process and without parameter servers
"""
