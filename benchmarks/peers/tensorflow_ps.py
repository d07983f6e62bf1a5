"""TensorFlow's ParameterServerStrategy with its ClusterCoordinator: one worker, one parameter server, one coordinator.

`python -m benchmarks.peers.tensorflow_ps SETTINGS` runs in any Python that has tensorflow and numpy; it imports neither
torch nor elastichost. It trains the small shape only. Tables are variables on the server, one variable for all tables
of a width. A step reads the unique rows of its batch from the server and applies one sparse gradient to each width
(Adagrad, because TensorFlow has no row-wise kernel). Steps are scheduled asynchronously; the coordinator counts
finished steps.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.peers.common import Counter, PeerSettings, enter_role, fork_role
from benchmarks.workload.shape import DENSE, SMALL

__all__ = ["main"]

ROW_RATE, ROW_EPS, INIT_BOUND = 0.1, 1e-8, 0.01
DENSE_RATE, BETA_1, BETA_2, ADAM_EPS = 1e-3, 0.9, 0.999, 1e-8
STEPS_SCHEDULED = 4
Layers = list[tuple[Any, Any]]


def main(settings: PeerSettings) -> None:
    """Trains until it is killed."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    ports = _free_ports(3)
    cluster = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    with fork_role("worker-0") as is_worker:
        if is_worker:
            _serve(tf, settings, cluster, "worker")
            return
        with fork_role("server-0") as is_server:
            if is_server:
                _serve(tf, settings, cluster, "ps")
                return
            _coordinate(tf, settings, cluster)


def _free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    try:
        return [f"localhost:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _limit_threads(tf: Any, settings: PeerSettings) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # one may wait for a message while the other computes


def _serve(tf: Any, settings: PeerSettings, cluster: dict[str, list[str]], job: str) -> None:
    _limit_threads(tf, settings)
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=0, protocol="grpc").join()


def _coordinate(tf: Any, settings: PeerSettings, cluster: dict[str, list[str]]) -> None:
    _limit_threads(tf, settings)
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        step = _make_step(tf, settings)
    batches = iter(coordinator.create_per_worker_dataset(lambda: _dataset(tf, settings)))
    counter = Counter(Path(settings.counter))
    scheduled: deque[Any] = deque()
    while True:
        scheduled.append(coordinator.schedule(step, args=(batches,)))
        if len(scheduled) == STEPS_SCHEDULED:
            scheduled.popleft().fetch()
            counter.add(0, settings.batch_size)


def _dataset(tf: Any, settings: PeerSettings) -> Any:
    """An endless dataset of (ids int64 [26, B], dense float32 [B, 13], labels float32 [B]); a record is a batch."""
    size = settings.batch_size
    ids_bytes, dense_bytes = 8 * SMALL.tables * size, 4 * DENSE * size
    record_bytes = ids_bytes + dense_bytes + 4 * size

    def decode(record: Any) -> tuple[Any, Any, Any]:
        ids = tf.io.decode_raw(tf.strings.substr(record, 0, ids_bytes), tf.int64)
        dense = tf.io.decode_raw(tf.strings.substr(record, ids_bytes, dense_bytes), tf.float32)
        labels = tf.io.decode_raw(tf.strings.substr(record, ids_bytes + dense_bytes, 4 * size), tf.float32)
        shapes = ((SMALL.tables, size), (size, DENSE), (size,))
        return tuple(tf.reshape(part, shape) for part, shape in zip((ids, dense, labels), shapes, strict=True))

    decoded = tf.data.FixedLengthRecordDataset(settings.batches, record_bytes).map(decode)
    return decoded.cache().repeat().prefetch(2)


def _make_step(tf: Any, settings: PeerSettings) -> Any:
    """A tf.function: iterator -> loss of one step. It creates the variables, so call it in the strategy's scope."""
    widths = [SMALL.dim] if settings.model == "dlrm" else [1, SMALL.dim]
    tables = [_Table(tf, width) for width in widths]
    network = _Dlrm(tf) if settings.model == "dlrm" else _WideDeep(tf)
    adam = _Adam(tf, network.variables)
    first_rows = tf.constant([[number * SMALL.rows] for number in range(SMALL.tables)], tf.int64)

    @tf.function
    def step(batches: Any) -> Any:
        ids, dense, labels = next(batches)
        rows, numbers = tf.unique(tf.reshape(tf.transpose(ids + first_rows), [-1]))
        pulled = [table.pull(rows) for table in tables]
        with tf.GradientTape() as tape:
            tape.watch(pulled)
            fields = [
                tf.reshape(tf.gather(weights, numbers), [-1, SMALL.tables, width])
                for weights, width in zip(pulled, widths, strict=True)
            ]
            logits = network(dense, fields)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        gradients = tape.gradient(loss, [*pulled, *network.variables])
        for table, gradient in zip(tables, gradients, strict=False):
            table.push(rows, tf.convert_to_tensor(gradient))
        adam.apply(gradients[len(tables) :])
        return loss

    return step


class _Table:
    """All tables of a width, float32 [26 * 100,000, width], with Adagrad's state, on the parameter server."""

    def __init__(self, tf: Any, width: int) -> None:
        self._tf = tf
        shape = (SMALL.tables * SMALL.rows, width)
        self._weights = tf.Variable(tf.random.uniform(shape, -INIT_BOUND, INIT_BOUND))
        self._state = tf.Variable(tf.zeros(shape))

    def pull(self, rows: Any) -> Any:
        return self._tf.gather(self._weights, rows)

    def push(self, rows: Any, gradients: Any) -> None:
        with self._tf.device(self._weights.device):
            self._tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=self._weights.handle,
                accum=self._state.handle,
                lr=ROW_RATE,
                epsilon=ROW_EPS,
                grad=gradients,
                indices=rows,
            )


class _Adam:
    """Adam of the dense part, one fused kernel for each variable, on the parameter server."""

    def __init__(self, tf: Any, variables: list[Any]) -> None:
        self._tf, self._variables = tf, variables
        self._moments = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]
        self._step = tf.Variable(0.0)

    def apply(self, gradients: list[Any]) -> None:
        tf, step = self._tf, self._step.assign_add(1.0, read_value=True)
        for variable, (first, second), gradient in zip(self._variables, self._moments, gradients, strict=True):
            with tf.device(variable.device):
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=first.handle,
                    v=second.handle,
                    beta1_power=tf.pow(BETA_1, step),
                    beta2_power=tf.pow(BETA_2, step),
                    lr=DENSE_RATE,
                    beta1=BETA_1,
                    beta2=BETA_2,
                    epsilon=ADAM_EPS,
                    grad=gradient,
                )


def _layers(tf: Any, sizes: list[int]) -> Layers:
    """Weights and biases from sizes[0] inputs through every size that follows."""
    made = []
    for inputs, outputs in pairwise(sizes):
        bound = (6.0 / (inputs + outputs)) ** 0.5
        made.append((tf.Variable(tf.random.uniform((inputs, outputs), -bound, bound)), tf.Variable(tf.zeros(outputs))))
    return made


def _hidden(tf: Any, layers: Layers, given: Any) -> Any:
    for weights, bias in layers:
        given = tf.nn.relu(tf.matmul(given, weights) + bias)
    return given


class _Dlrm:
    """13-64-16 bottom, dot products of all pairs, 367-64-1 top."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        fields = SMALL.tables + 1
        pairs = [row * fields + column for row in range(fields) for column in range(row)]
        self._pairs = tf.constant(pairs, tf.int32)
        self._bottom = _layers(tf, [DENSE, 64, SMALL.dim])
        self._top = _layers(tf, [SMALL.dim + len(pairs), 64])
        self._head = _layers(tf, [64, 1])
        self.variables = [part for layer in (*self._bottom, *self._top, *self._head) for part in layer]

    def __call__(self, dense: Any, fields: list[Any]) -> Any:
        tf = self._tf
        bottom = _hidden(tf, self._bottom, dense)
        stacked = tf.concat([bottom[:, None, :], fields[0]], axis=1)
        products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [tf.shape(dense)[0], -1])
        top = _hidden(tf, self._top, tf.concat([bottom, tf.gather(products, self._pairs, axis=1)], axis=1))
        weights, bias = self._head[0]
        return (tf.matmul(top, weights) + bias)[:, 0]


class _WideDeep:
    """A linear part over ids and numbers; 429-256-128-64 over the rows and numbers."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._wide = _layers(tf, [DENSE, 1])
        self._deep = _layers(tf, [SMALL.tables * SMALL.dim + DENSE, 256, 128, 64])
        self._head = tf.Variable(tf.random.uniform((64, 1), -0.3, 0.3))
        self.variables = [*(part for layer in (*self._wide, *self._deep) for part in layer), self._head]

    def __call__(self, dense: Any, fields: list[Any]) -> Any:
        tf = self._tf
        first_order, rows = fields
        weights, bias = self._wide[0]
        wide = tf.reduce_sum(first_order, axis=[1, 2]) + (tf.matmul(dense, weights) + bias)[:, 0]
        flat = tf.reshape(rows, [-1, SMALL.tables * SMALL.dim])
        deep = _hidden(tf, self._deep, tf.concat([flat, dense], axis=1))
        return wide + tf.matmul(deep, self._head)[:, 0]


if __name__ == "__main__":
    enter_role("chief")
    main(PeerSettings.from_json(sys.argv[1]))
