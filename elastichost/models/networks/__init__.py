"""The networks of the published models: one module for each paper.

Modules:
    dlrm        DLRM
    dcn         DCN-V2
    deepfm      DeepFM
    wide_deep   Wide & Deep
    xdeepfm     xDeepFM
    mmoe        MMoE, for several labels
    din         DIN, with attention over sequences
    two_towers  vectors of users and items for retrieval
    layers      layers that several models share
"""
