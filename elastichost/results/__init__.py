"""The results of a run: a model in a directory (`export`), and scores of a file (`predict`).

Modules:
    assemble           assembles the tensors of the model from the blocks of a checkpoint
    export             writes the directory
    description        `preprocess.json`: columns, kinds of ids, rules
    safetensors_file   writes the tensors as a stream
    program            makes one program of the model, with torch.export
    embeddings         writes the vectors of tables
    vector_files       which vectors the model is to compute, and from which files
    vectors            writes the vectors that the model computes, such as those of an item tower
    texts              finds the texts of hashed ids in the training data
    readme             the README of an export
    preprocess         turns columns into inputs of the model; it is copied into every export and needs no elastichost
    reader             loads an export; it is copied too
    predict            scores a file, in one process and without parameter servers
"""
