"""A run over two machines that strangers and insiders attack.

benchmark         windows without and with attackers; the command
victims           the run that is attacked
attackers         what attackers do
leaky_supervisor  a supervisor that gives its keys away
"""
