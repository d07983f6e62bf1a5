"""Metrics of predictions on test data.

binary         AUC, log loss, normalised entropy, calibration of one label
grouped        GAUC, NDCG and recall, which rank the samples of each group (such as a user)
figures        every figure that a job asks for, of all its labels
own_metrics    the user's own metric functions: starts the process that calls them, and reads its answer
own_process    the program of that process
"""
