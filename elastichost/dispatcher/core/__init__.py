"""The dispatcher's decisions about the jobs of one host. Pure: the loop passes events and the present time as
arguments, and performs the effects that are returned.

Modules:
    core                   the state of all jobs; folds events, and returns the effects
    effects                the effects that the loop performs
    entries, lifecycle     the state of one job, and the transitions of its lifecycle
    demands, shapes        the resources that a job demands; digests that are equal for jobs that are alike
    examinations           which jobs are examined now, before their start
    input_capacity         how many bytes per second the jobs of the host can read together
    interference_control   windows of speed, feedback on jobs that slow others, and the sharing of cores
    oom_containment        actions when all jobs together use too much memory
    allocation_drift       corrects the entry of a job whose run has another size or other cores than it was told
    refusals               limits how often refused commands are journaled
    endings                stops jobs, and decides between requeue and failure when a job ends
"""
