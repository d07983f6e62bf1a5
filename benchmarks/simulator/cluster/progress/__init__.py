"""The progress of all jobs in columns, advanced by compiled code.

columns      one row for each job that has not ended: its progress, and what its speed follows from
kernel       compiled: integrates the progress of rows, computes their rates, and finds their first end
event_queue  the events in order of time; the ends of jobs are a column
"""
