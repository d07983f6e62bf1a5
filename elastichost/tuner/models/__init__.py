"""Models of speed.

Modules:
    base                          priors, fits, predictions, the choice of a model by name
    queueing, queueing_form       the model of elastichost
    dlrover_rm, optimus, pollux   published models
    linear, posynomial, fitting   how models are fitted
    residual_gp                   what was measured nearby corrects a prediction
    links                         traffic between hosts
"""
