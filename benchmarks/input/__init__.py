"""Input: how near the tuner of the input comes to the best knobs, and to other input pipelines.

benchmark      the benchmark: cases, arms, rounds, figures
cases          the files, and the servers that give them slowly
pipeline_run   a worker's pipeline that is read by a consumer of a given speed
arms           the tuner, all knobs at maximum, the best of a grid, no tuning
rl_agent       an agent that learns the knobs by trial and reward; pure
data_loader    torch's DataLoader with a tuned number of processes
tfdata         tf.data with AUTOTUNE, in a Python of its own
figures        the names of the arms, and the figures that both benchmarks have
halved         a source whose bandwidth halves while the tuner is at work
store          the pipeline on an object store against the same files on the disk
live           whole runs of the job whose source has 7.4 MB/s for each connection
"""
