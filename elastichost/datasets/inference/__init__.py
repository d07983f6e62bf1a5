"""What a file of samples holds, found from a part of its rows, and the job file that follows from it.

Modules:
    sample        reads a part of a Parquet, CSV or Criteo file
    text_types    the types of the columns of a text file
    columns       the facts about each column: type, nulls, distinct values, size of its numbers
    roles         what a column is used for: label, dense, categorical, or nothing; and why
    shared_ids    columns of lists that hold the ids of another column
    job_text      the job file, as text
"""
