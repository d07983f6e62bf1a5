"""The networks of the published models: one module for each paper.

Modules:
    dlrm        DLRM
    dcn         DCN-V2
    deepfm      DeepFM
    wide_deep   Wide & Deep
    xdeepfm     xDeepFM
    layers      layers that several models share
"""
