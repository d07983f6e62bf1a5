"""Attacks a run on two machines, by processes without a key (strangers) and with an accepted key (insiders).

benchmark         the command: windows without and with attackers
victims           the run that is attacked
attackers         the attacks
leaky_supervisor  a supervisor that writes its keys to a file
"""
