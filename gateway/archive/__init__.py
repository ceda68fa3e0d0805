"""`opid-gateway backfill`: teach a group from data measured before it had nodes.

mapping    which column is what, as the operator says it
sources    where the rows are: Parquet files, PostgreSQL, Home Assistant's recorder; in parts
task       everything that the sums of a part depend on
hands      who gathers parts: this process, others of this machine, a Dask cluster
learning   parts in a fixed order into one total, with checkpoints
records    the total as the gateway keeps it
"""
