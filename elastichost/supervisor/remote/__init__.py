"""Other machines of a run: their agents, and the way to them.

Modules:
    hosts                all other machines of a run
    preflight            what speaks against a machine, before a run
    multi_host_launcher  one launcher for all hosts of a run
    remote_launcher      the supervisor's end of an agent
    agent_launcher       starts an agent, here, over ssh or on a node of Ray
    agent                the agent: `python -m elastichost.supervisor.remote.agent`
    agent_tasks          what an agent does beside starting processes
    messages, framing    what both say to each other, and how it travels
    transfers            files that go to another host, or come from there
    link_probe           whether and how fast machines reach each other
    keyring              CURVE keys of all processes
    job_bundle           what processes on other machines need of the job
    ray/                 nodes of a Ray cluster as machines
"""
