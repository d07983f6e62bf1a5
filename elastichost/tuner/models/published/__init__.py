"""Published models of speed, which `tuner.model` may name instead of this project's own.

Modules:
    dlrover_rm   DLRover-RM
    optimus      Optimus
    pollux       Pollux
"""
