"""elastichost against other ways to train the same model on this machine.

benchmark    the command
lineup       which arms there are, and how each is started
process_arm  an arm as a tree of processes that is stopped and resumed
windows      interleaved windows of such arms
comparison   every arm in every setting
figures      from windows to figures and ratios
report       tables, Markdown, JSON
plot         the picture
"""
