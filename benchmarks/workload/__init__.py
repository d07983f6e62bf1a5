"""What benchmarks train.

shape     sizes of models and of their data
samples   draws samples of a shape, and writes them as files
job_file  the job file of elastichost's runs
"""
