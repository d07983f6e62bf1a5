"""One module for each paper.

Modules:
    dlrm        DLRM
    dcn         DCN-V2
    deepfm      DeepFM
    wide_deep   Wide & Deep
    xdeepfm     xDeepFM
    layers      what several of them share
"""
