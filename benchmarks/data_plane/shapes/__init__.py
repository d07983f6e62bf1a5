"""elastichost and torchrec with models of several shapes, in float32 and in bfloat16.

comparison   starts the arms of a shape, measures them in rounds, ends them
arms         the arms: processes, and the modes in which a peer is measured
products     the limit: a training step that has only its matrix products
figures      speeds, ratios and aims of a shape
report       tables and the JSON object
"""
