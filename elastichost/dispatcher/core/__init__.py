"""Jobs of one host: events in, effects out. Pure.

Modules:
    core                   what happens to jobs, and what is done about it
    effects                what the loop has to perform
    entries, lifecycle     one job, and its states
    demands, shapes        what a job demands; when two jobs are alike
    examinations           which jobs are looked at before they start
    interference_control   jobs that slow each other
    oom_containment        jobs that together use too much memory
    allocation_drift       what a run has, where that is not what it was told
    refusals               commands that were refused, told now and then
    endings                jobs that end, asked to or not, and what becomes of them
"""
