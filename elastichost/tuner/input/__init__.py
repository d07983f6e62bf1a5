"""Tunes the input of workers while they train: how many connections, how far ahead, within which memory. Pure.

Modules:
    facts        what is measured of the input, what limits it, and what is decided
    window       sums measurements over a stretch of undisturbed training
    model        predicts the speed of a set of knobs
    candidates   the sets of knobs that may be chosen, and the cheapest good one
    cache_choice  whether what is read is kept for the next epoch
    decide       measures, predicts, changes the knobs, and checks what came of it

The model. A worker with R connections, which request ranges of u bytes, receives R u / (latency + u / bandwidth)
bytes/s. All workers together receive no more than the link has. A worker decodes in D threads and prepares in one.
Workers take no more than they can compute, and all threads together have no more than the cores. The smallest of
these is the speed:

    X = min(W R u / (latency + u / bandwidth), link, W D / decode, W / prepare, workers_rate, cores / CPU of a sample)

Decoding a unit that is fetched as a whole begins when the latest of its requests has arrived, which is later than one
request alone by what the quantiles of the time of a request say.

Only CPU counts against cores: a connection that waits costs none. So what connections can do is never done by more
workers. Bytes ahead cover the irregular part of the source, by Little's law: speed x (p99 - p50) of a
request.

Theory of operation. A window of steady training gives latency, bandwidth and costs. All candidates are predicted, and
the cheapest of the best is set, if the gain is worth it. What a unit ahead takes of the memory is measured and no
estimate: with a byte too few, none is decoded ahead. The next window checks the change: less than expected teaches the
bandwidth of the link, and a speed that fell takes the change back. Where the model finds nothing but workers still
wait, connections are added step by step, or decode threads where the source is not busy. A settled input is watched:
when workers wait again, or wait no more than before but the source became slower, it is tuned anew.
"""
