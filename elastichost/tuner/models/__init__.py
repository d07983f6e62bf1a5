"""Models that predict the speed (samples/s) of configurations.

Modules:
    base                          priors, fits and predictions, common to all models
    linear, posynomial            sums of columns; sums of products with their derivatives
    least_squares                 robust fits with priors, and the reliability of their predictions
    link_traffic                  bytes between hosts
    ceiling                       the upper limit of the speed that follows from measured CPU times
    queueing, queueing_equations  the fit and the equations of the `elastichost` model
    two_kinds                     a fit for workers with a GPU, and one for CPU workers beside them
    published/                    published models
    residual_gp                   corrects predictions by the residuals of similar measured configurations
    registry                      the models by name
"""
