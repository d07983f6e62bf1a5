"""Ready models beside the same mathematics in a plain loop: their quality must be the same.

samples       the samples of a job as tensors, read with pyarrow
plain_loop    trains a job with torch and torchrec alone, in one process
recall        recall at k of vectors
benchmark     AUC and recall of both, over several seeds
__main__      `python -m benchmarks.models`
"""
