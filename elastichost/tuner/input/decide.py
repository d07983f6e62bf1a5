"""Decides about the knobs of the input: measures, predicts, changes them, and checks what came of it. Pure.

Rules
1. A decision needs a complete window. The exception is memory: knobs beyond what a worker may hold shrink at once.
2. A change must be predicted to gain `min_gain`, and its result is checked in the next window.
3. A gain of less than half of what was expected, while the source was busy, teaches the bandwidth of the link. A change
   that gained nothing, while the source was busy or with more decode threads, or that made the speed fall by more than
   NOISE is taken back, and those knobs are not chosen again until the source changes. A speed that fell while workers
   do not wait is not the work of connections, which cost no core: the host became busier.
4. Where the model finds no gain but workers wait for a busy source, connections are added: STEP more each time, until
   a step gains nothing. Where they wait for a source that is not busy, a decode thread is added in the same way.
5. Where workers still wait after TRIED changes, or when none is left, what is read is kept for the next epoch, if the
   job has one and there is room. It is not the last thing that is tried: what was read before is fetched again.
6. A settled input is tuned anew when workers wait for MORE_WAIT more of their time, or the source became slower.
"""

from __future__ import annotations

import math

import msgspec

from elastichost.tuner.input.cache_choice import chosen_cache
from elastichost.tuner.input.candidates import DECODE_THREADS, best_knobs, within_memory
from elastichost.tuner.input.facts import InputDecision, InputLook, InputTunerSettings
from elastichost.tuner.input.model import InputModel, fitted, roomy_knobs
from elastichost.tuner.input.window import InputWindow, folded
from elastichost.wire.facts import MOST_CONNECTIONS, InputKnobs

__all__ = ["InputState", "decide", "holds_workers", "is_tuning"]

NOISE = 0.05  # change of a speed between two windows that means nothing
SHORT = 0.5  # a gain below this share of the expected one is explained by the link
BUSY = 0.6  # occupancy of the connections from which on they bound the speed
WAITING = 0.08  # share of the workers' time in which they wait for batches: less is not worth a step
MORE_WAIT = 0.1
FREE_CORES = 0.9  # of all cores; with more in use a decode thread more takes from workers what it gives
SLOWER = 0.8  # a connection with less than this share of its bandwidth is another source
TRIED = 2  # changes for the better after which a source that workers wait for is not waited for once more
STEP = 2  # connections added at a time where the model finds no gain
REFUSED_KEPT = 16
LEAST_PATIENCE_S, MOST_PATIENCE_S = 6.0, 600.0  # until a full link is doubted; doubles each time


class InputState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tuner of the input remembers.

    window: the measurement under way. link: bytes/s that the link is known to bound; inf: unknown. before: the knobs
    and the speed before the last change, while it is not checked. expected: the speed that was predicted for it.
    refused: knobs that were taken back. is_settled: nothing is left to gain, since settled_s. patience_s: until a
    full link is doubted. settled_wait, settled_bandwidth: share of waiting and bytes/s of a connection when it
    settled. is_input_bound: workers wait for the source all the same. probes_over: the last step by STEP gained
    nothing. changes: since the input was measured anew."""

    window: InputWindow = InputWindow()
    link: float = math.inf
    before: InputKnobs | None = None
    before_speed: float = 0.0
    expected: float = 0.0
    is_probe: bool = False
    probes_over: bool = False
    refused: tuple[InputKnobs, ...] = ()
    is_settled: bool = False
    settled_s: float = 0.0
    patience_s: float = LEAST_PATIENCE_S
    settled_wait: float = 0.0
    settled_bandwidth: float = 0.0
    is_input_bound: bool = False
    changes: int = 0


def decide(state: InputState, look: InputLook, settings: InputTunerSettings) -> tuple[InputState, InputDecision | None]:
    """Folds one look. Returns the new state, and a decision if one is due."""
    state = msgspec.structs.replace(state, window=folded(state.window, look))
    if look.knobs is None:
        return state, None
    held = within_memory(look.knobs, look.memory_bytes)
    if held != look.knobs:
        return msgspec.structs.replace(state, before=None), InputDecision("shrink", held, limit="memory")
    if not state.window.is_complete(settings.window_s, settings.batch_size):
        return state, None
    window, state = state.window, msgspec.structs.replace(state, window=_following(state.window))
    state, undone = _checked(state, window, look.knobs)
    if undone is not None:
        return state, undone
    model = fitted(window, state.link)
    if state.is_settled:
        change = _change(state, window, model, look.knobs)
        if change == "source":  # a part of this window may be from before the change
            speed, wait = window.samples_per_s, window.totals.wait_share
            return InputState(window=state.window), InputDecision("measure", look.knobs, speed, wait_share=wait)
        if not change and not _doubts_link(state, window, look.at_s):
            return state, None
        patience_s = LEAST_PATIENCE_S if change else min(2 * state.patience_s, MOST_PATIENCE_S)
        state = InputState(window=state.window, patience_s=patience_s)  # what was learnt is old
        model = fitted(window, state.link)
    return _chosen(state, window, model, look, settings)


def holds_workers(state: InputState) -> bool:
    """Whether more workers would only do what connections can do, or cannot: the input is not tuned yet, or workers
    wait for the source whatever the knobs are."""
    return not state.is_settled or state.is_input_bound


def is_tuning(state: InputState) -> bool:
    """Whether the knobs may change at any time, so that a measurement of the workers would be disturbed."""
    return not state.is_settled


def _following(window: InputWindow) -> InputWindow:
    """The next window with the same knobs: nothing has to warm up."""
    return InputWindow(window.knobs, window.workers, window.until_s, window.until_s, window.until_s)


def _checked(state: InputState, window: InputWindow, knobs: InputKnobs) -> tuple[InputState, InputDecision | None]:
    """Compares the window with what the last change was expected to give."""
    if state.before is None or state.before == knobs:  # no change, or one that is only watched
        return msgspec.structs.replace(state, before=None), None
    speed, before = window.samples_per_s, state.before
    received = window.totals.source_bytes / window.lasted_s
    hoped = state.before_speed + SHORT * (state.expected - state.before_speed)
    is_short = state.expected > 0 and speed < hoped
    is_source = is_short and _occupancy(window, knobs) >= BUSY
    link = received if is_source and knobs.connections > before.connections else state.link
    gained = speed > (1 + NOISE) * state.before_speed
    checked = msgspec.structs.replace(
        state, before=None, link=link, is_probe=False, probes_over=state.is_probe and not gained
    )
    has_more_threads = knobs.decode_threads > before.decode_threads
    may_be_knobs = window.totals.wait_share >= WAITING / 2 or has_more_threads
    is_worse = may_be_knobs and speed < (1 - NOISE) * state.before_speed
    gained_nothing = not gained and (state.is_probe or is_source or (is_short and has_more_threads))
    if not is_worse and not gained_nothing:
        known_slower = (before,) if state.is_probe else ()  # the model does not know, and would choose them again
        return msgspec.structs.replace(checked, refused=(*state.refused, *known_slower)[-REFUSED_KEPT:]), None
    refused = (*state.refused, knobs)[-REFUSED_KEPT:]
    back = InputDecision("return", before, speed, state.before_speed, window.totals.wait_share)
    return msgspec.structs.replace(checked, refused=refused, probes_over=True), back


def _change(state: InputState, window: InputWindow, model: InputModel, knobs: InputKnobs) -> str:
    """What has changed since the input settled: "source": it became slower; "workers": they wait more, or not for the
    source any more, as when an epoch comes from a cache; "": nothing."""
    wait = window.totals.wait_share
    if wait >= WAITING / 2 and 0 < model.bandwidth < SLOWER * state.settled_bandwidth:
        return "source"
    is_source_idle = state.is_input_bound and wait >= WAITING and _occupancy(window, knobs) < BUSY
    return "workers" if wait > state.settled_wait + MORE_WAIT or is_source_idle else ""


def _doubts_link(state: InputState, window: InputWindow, now_s: float) -> bool:
    """Whether it is time to try again if the link is full: the source may have been slow just when it was tried."""
    is_waiting = math.isfinite(state.link) and window.totals.wait_share >= WAITING
    return is_waiting and now_s - state.settled_s >= state.patience_s


def _chosen(
    state: InputState, window: InputWindow, model: InputModel, look: InputLook, settings: InputTunerSettings
) -> tuple[InputState, InputDecision | None]:
    present = look.knobs
    assert present is not None
    speed, wait = window.samples_per_s, window.totals.wait_share
    knobs, prediction = best_knobs(present, model, look.memory_bytes, settings)
    now = model.predict(present, settings)
    is_slow = wait >= WAITING and window.totals.samples > 0  # a source that gives nothing tells nothing
    cache = chosen_cache(model, now.limit, look, settings) if is_slow and present.cache == "none" else "none"
    kept = InputDecision("cache", msgspec.structs.replace(present, cache=cache), speed, 0.0, wait, now.limit)
    if cache != "none" and state.changes >= TRIED:
        return state, kept
    # What the link gives was measured, so a prediction that it bounds is compared with a speed that was measured, too.
    base = speed if prediction.limit == "link" else min(now.samples_per_s, speed)
    gain = prediction.samples_per_s / max(1e-9, base)
    is_worth = gain >= 1 + settings.min_gain and wait >= WAITING / 2
    if is_worth and knobs != present and knobs not in state.refused:
        found = InputDecision("tune", knobs, speed, prediction.samples_per_s, wait, prediction.limit)
        return _changing(state, window, present, prediction.samples_per_s), found
    step = _probe(state, window, model, look, settings)
    if step is not None:
        found = InputDecision("probe", step, speed, 0.0, wait, now.limit)
        return msgspec.structs.replace(_changing(state, window, present, 0.0), is_probe=True), found
    if state.is_settled:
        return state, None
    if cache != "none":
        return state, kept
    is_bound = wait >= WAITING and _occupancy(window, present) >= BUSY
    settled = msgspec.structs.replace(
        state,
        is_settled=True,
        settled_s=look.at_s,
        settled_wait=wait,
        settled_bandwidth=model.bandwidth,
        is_input_bound=is_bound,
    )
    return settled, InputDecision("settle", present, speed, now.samples_per_s, wait, now.limit)


def _changing(state: InputState, window: InputWindow, present: InputKnobs, expected: float) -> InputState:
    return msgspec.structs.replace(
        state,
        before=present,
        before_speed=window.samples_per_s,
        expected=expected,
        is_probe=False,
        is_settled=False,
        changes=state.changes + 1,
    )


def _probe(
    state: InputState, window: InputWindow, model: InputModel, look: InputLook, settings: InputTunerSettings
) -> InputKnobs | None:
    """The knobs with some connections more, or with a decode thread more where the source is not busy; None: that
    would gain nothing, or may not be."""
    present = look.knobs
    assert present is not None
    if window.totals.wait_share < WAITING or state.probes_over:
        return None
    if _occupancy(window, present) >= BUSY:
        knobs = _more_connections(state, present, settings)
    else:
        knobs = _more_decoding(window, model, look.memory_bytes, present, settings)
    return None if knobs == present or knobs in state.refused else knobs


def _more_connections(state: InputState, present: InputKnobs, settings: InputTunerSettings) -> InputKnobs:
    if "connections" in settings.fixed or math.isfinite(state.link):  # with a link that is known, that is the bound
        return present
    return msgspec.structs.replace(present, connections=min(MOST_CONNECTIONS, present.connections + STEP))


def _more_decoding(
    window: InputWindow, model: InputModel, memory_bytes: int, present: InputKnobs, settings: InputTunerSettings
) -> InputKnobs:
    used_cores = model.cpu_s * window.samples_per_s
    is_possible = settings.unit_samples and 0 < used_cores < FREE_CORES * settings.cores  # 0: nothing arrives
    if not is_possible or "prefetch_bytes" in settings.fixed:
        return present
    threads = settings.fixed.get("decode_threads", min(DECODE_THREADS[-1], present.decode_threads + 1))
    knobs = msgspec.structs.replace(present, decode_threads=threads)
    return roomy_knobs(knobs, model, memory_bytes, settings) or present


def _occupancy(window: InputWindow, knobs: InputKnobs) -> float:
    """Share of the connections that were in use."""
    seconds = window.totals.seconds * knobs.connections
    return min(1.0, window.totals.source_s / seconds) if seconds > 0 else 0.0
