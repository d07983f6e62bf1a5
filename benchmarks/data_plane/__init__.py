"""Compares elastichost with other systems that train the same model on this machine.

benchmark    the command
lineup       the arms, and how each is started
process_arm  an arm as a tree of processes that is stopped and resumed
windows      measures an arm for a window of time
startup      starts the arms, and stops each as soon as it trains
rounds       measures all arms in interleaved rounds
comparison   measures every arm in every setting
figures      computes figures and ratios from windows
report       tables, Markdown, JSON
plot         the chart
shapes       the same for models of several shapes, in float32 and bfloat16
"""
