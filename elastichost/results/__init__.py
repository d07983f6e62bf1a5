"""What comes out of a run: a plain torchrec model in a directory (`export`), and scores of a file (`predict`).

Modules:
    assemble           the tensors of the model, from the blocks of a checkpoint
    export             writes the directory
    safetensors_file   writes the tensors as a stream
    reader             is copied into every export, and works alone
    predict            scores a file, in one process and without parameter servers
"""
