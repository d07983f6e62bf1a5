"""What comes out of a run: a plain torchrec model in a directory (`export`), and scores of a file (`predict`).

`assemble` puts the model's tensors together from a checkpoint; `reader` is copied into every export and works alone.
"""
