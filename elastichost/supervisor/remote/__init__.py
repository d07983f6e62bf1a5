"""Other machines of a run: their agents, and the connections to them.

Modules:
    hosts                all other machines of a run
    preflight            checks whether a machine can be used
    multi_host_launcher  one launcher for all hosts of a run
    remote_launcher      the launcher of another host: the supervisor's end of an agent
    agent_launcher       starts an agent: on this machine, over ssh or on a node of Ray
    agent                the agent: `python -m elastichost.supervisor.remote.agent`
    agent_tasks          what an agent does besides starting processes: files, probes, checkpoints
    messages             what the supervisor and an agent send to each other
    framing              how these messages are sent over the standard streams of the agent
    transfers            copies files to another host and from there
    link_probe           tests and measures the link between two machines
    keyring              the CURVE keys of all processes
    job_bundle           the files of the job that processes on other machines need
    ray/                 nodes of a Ray cluster as machines of a run
"""
