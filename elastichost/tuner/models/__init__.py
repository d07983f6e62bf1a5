"""Models of speed.

Modules:
    base                          priors, fits, predictions: what all models share
    linear, posynomial            sums of columns; sums of products with their derivatives
    least_squares                 robust fits with priors, and how far their predictions can be trusted
    link_traffic                  bytes between hosts
    ceiling                       the speed that no configuration exceeds, by the CPU time that was measured
    queueing, queueing_equations  the model of elastichost
    dlrover_rm, optimus, pollux   published models
    residual_gp                   what was measured nearby corrects a prediction
    registry                      the models by name
"""
