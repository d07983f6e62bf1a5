"""One step of the user's model: how it is called, and how it is tried before a run.

Modules:
    model_runner   the forward pass and the loss of one training step, and the scores of an evaluation
    batch_step     how a leased batch is computed: the interface, and autograd's step
    trial_step     training steps before the job runs, with constant rows
    step_times     times of such steps, by precision and batch size
"""
