"""Forecasts whether a host's memory budget will be exceeded, and chooses an action in time. Pure.

Rules:
- The budget of a host will be exceeded when  used memory + growth of the rows  > budget.
- An action is chosen when the probability of that within the window is above ACT_ABOVE (40 %). The window is
  ACTIONS_AHEAD (3) times the time that an action takes, at least LEAST_WINDOW_S (300 s), and ends with the run.
- The actions, in the order of `MemorySample.possible`: "move" buckets to a host with room; "evict" rows that were
  unseen for longest, with the longest age limit (the *horizon*) at which the remaining rows fit; "admit" ids to a row
  only after more sightings; "shrink": train with fewer workers. An action that does not help is skipped.
- If no action helps, the decision is "warn", with the expected time.

Theory of operation. The caller calls `decide` with one sample of the memory at a time (about one per second); the state
is folded. `growth.observe` fits the law of new rows; `growth.forecast` gives the distribution of the bytes that rows
will add. Used memory is all memory that cannot be given back: the arena, the private memory of the processes, and
memory that is still needed without any new row (an index has two generations while it grows; a checkpoint copies the
rows). The bytes of a row include these costs. With a horizon in force, places of dropped rows are used again, so rows
grow only to the bytes that the horizon keeps.

A forecast from a few seconds of data reaches only MOST_AHEAD times the observed time. Estimates from similar jobs reach
the whole window, but count only above FORESEEN_ABOVE. Several consecutive samples must agree before an action
(`_is_certain`), and an action gets the time that it takes before another one is chosen. Without an alarm, a horizon
that is shorter than necessary is lengthened step by step. A run that is killed loses this state; the forecast of a
resumed run starts again.
"""

from __future__ import annotations

import math

import msgspec

from elastichost.history.features import Estimates
from elastichost.human_readable import mib
from elastichost.tuner.memory import growth as memory_growth
from elastichost.tuner.memory.facts import HostMemorySample, MemoryDecision, MemoryKind, MemorySample
from elastichost.tuner.memory.growth import GrowthState, RowForecast, chance_beyond, clipped, forecast, quantile
from elastichost.tuner.memory.horizon import HIGH, LATE, LIVE_ERROR, kept_bytes, longest_horizon, passing_bytes
from elastichost.tuner.memory.prior import prior_of

__all__ = ["MemoryState", "begin", "decide", "predict"]


ACT_ABOVE = 0.4  # probability for an action; a lower value detects no more cases in time, and gives more false alarms
LEAVES_BELOW = 0.05  # probability of exceeding the budget that may remain after an action
LEAST_WINDOW_S = 300.0
ACTIONS_AHEAD = 3.0  # the window, in times that an action takes
WORTH_CHANGING = 0.9  # a horizon is shortened only below this share of its value, and lengthened above its inverse
LONGER_AFTER = 4.0  # a horizon is lengthened at the earliest after this many times that an action takes
MOST_SIGHTINGS = 64  # largest value of admit_after
MOST_AHEAD = 4.0  # a forecast reaches this many times the observed time, and at least
LEAST_ACTIONS_AHEAD = 1.5  # this many times that an action takes
LEAST_GROWTH = 0.005  # growth below this share of the budget counts as none
REPEAT_S = 60.0  # seconds until a warning is repeated
CONFIRMING_LOOKS = 2  # consecutive samples that must agree before an action
CONFIRMING_KNOWLEDGE = 5  # the same, where the forecast reaches beyond the observed time with the help of similar jobs
URGENT_ABOVE = 0.5  # probability above which a shorter confirmation suffices
FORESEEN_ABOVE = 0.95  # least probability of an alarm that rests only on similar jobs
CONFIRMING_SHARE, CERTAIN_SHARE = 0.3, 0.1  # time of confirmation as a share of the window: usual, and if urgent


class MemoryState(msgspec.Struct, frozen=True):
    """The folded samples. growth: the fitted law of new rows. began_s: time of the first sample. acted_s: time of the
    last action. lengthened_s: time at which a horizon was lengthened last. above: number of consecutive samples with an
    alarm, the first of them at above_s. warned_s: time of the last warning."""

    growth: GrowthState = GrowthState()
    began_s: float | None = None
    acted_s: float = -math.inf
    lengthened_s: float = -math.inf
    above: int = 0
    above_s: float = 0.0
    warned_s: float = -math.inf


def begin(memory: Estimates) -> MemoryState:
    """The first state. memory: estimates from similar jobs, by the names of `memory.prior`; may be empty."""
    return MemoryState(GrowthState(prior=prior_of(memory)))


def predict(state: MemoryState, look: MemorySample, samples_at: float) -> tuple[float, float]:
    """Returns the (median, 95 % quantile) of the bytes of all hosts together when `samples_at` samples are trained and
    no action is taken."""
    used = float(sum(host.used_bytes for host in look.hosts))
    found = forecast(state.growth, clipped(samples_at, look.new_ids_until))
    return (used, used) if found is None else (used + found.median, used + quantile(found, HIGH))


def decide(state: MemoryState, look: MemorySample, now_s: float) -> tuple[MemoryState, MemoryDecision]:
    """Folds one sample, and returns the new state and a decision."""
    growth = memory_growth.observe(state.growth, look.samples, look.made_bytes, look.row_bytes)
    began_s = now_s if state.began_s is None else state.began_s
    state = msgspec.structs.replace(state, growth=growth, began_s=began_s)
    window_s = max(ACTIONS_AHEAD * look.action_s, LEAST_WINDOW_S)
    # A short observation does not determine the growth over minutes; and early in a run that is not needed yet.
    seen_s = min(window_s, max(MOST_AHEAD * (now_s - began_s), LEAST_ACTIONS_AHEAD * look.action_s))
    outlook = _worst(state, look, seen_s)
    if seen_s < window_s and memory_growth.is_foreknown(growth):
        # Estimates from similar jobs reach the whole window, but are used only for a very probable alarm.
        far = _worst(state, look, window_s)
        outlook = far if far.chance > FORESEEN_ABOVE else outlook
    state = _with_alarm(state, outlook, now_s)
    if not _is_certain(state, look, outlook, seen_s, now_s):
        return _calm(state, look, outlook, now_s)
    if now_s - state.acted_s < look.action_s:
        return state, outlook.decision("stay", f"the last action takes effect: {outlook.text}", wants_ages=True)
    return _act(state, look, outlook, now_s)


# --- the outlook ------------------------------------------------------------------------------------------------------


class _Outlook(msgspec.Struct, frozen=True):
    """The forecast for the host that most probably exceeds its budget within the window.

    high_bytes: 95 % quantile of its memory at the end of the window. at_end: the window reaches the end of the run.
    may_exceed_by_end: some host exceeds its budget by the end of the run with a probability above LEAVES_BELOW."""

    host: HostMemorySample
    chance: float
    window_s: float
    exceeds_in_s: float | None
    high_bytes: float
    at_end: bool
    may_exceed_by_end: bool

    @property
    def text(self) -> str:
        host = self.host
        when = "by the end of the run" if self.at_end else f"within {self.window_s:.0f} s"
        where = f"host {host.host}: " if host.host else ""
        return (
            f"{where}{mib(host.used_bytes)} of {mib(host.budget_bytes)} are used, probably at most "
            f"{mib(self.high_bytes)} {when}; the probability of exceeding the budget is {self.chance:.0%}"
        )

    def decision(self, kind: MemoryKind, reason: str, **facts: object) -> MemoryDecision:
        common = MemoryDecision(kind, reason, self.host.host, self.chance, self.window_s, self.exceeds_in_s)
        return msgspec.structs.replace(common, **facts)


def _worst(state: MemoryState, look: MemorySample, window_s: float) -> _Outlook:
    ahead = min(float(look.samples_left), look.samples_per_s * window_s)
    found = _growth(state, look, ahead)
    by_end = _growth(state, look, float(look.samples_left))

    def chance(host: HostMemorySample, of: RowForecast | None) -> float:
        room = host.budget_bytes - host.used_bytes
        if of is None or host.share <= 0:
            return float(room < 0)
        return max(float(room < 0), chance_beyond(of, room / host.share))

    host = max(look.hosts, key=lambda one: (chance(one, found), one.used_bytes / one.budget_bytes))
    high = host.used_bytes + (quantile(found, HIGH) * host.share if found is not None else 0.0)
    return _Outlook(
        host,
        chance(host, found),
        window_s,
        _exceeds_in_s(state, look, host),
        high,
        ahead >= look.samples_left,
        any(chance(one, by_end) > LEAVES_BELOW for one in look.hosts),
    )


def _growth(state: MemoryState, look: MemorySample, ahead: float) -> RowForecast | None:
    """The distribution of the bytes by which the places of rows grow within the next `ahead` samples. With a horizon in
    force, freed places are used again, so the places grow only to the bytes that the horizon keeps."""
    found = forecast(state.growth, clipped(look.samples + ahead, look.new_ids_until))
    if found is None or look.horizon == 0 or look.samples + ahead <= look.horizon:
        return found
    places = sum(host.place_bytes for host in look.hosts)
    kept = kept_bytes(state.growth, look, look.horizon, shortens_own=look.shortens_own)
    kept += passing_bytes(state.growth, look)
    more = max(0.0, kept - places)
    if more >= found.median:
        return found
    # a log-normal forecast around the kept bytes: places + more has the error LIVE_ERROR
    most = max(0.0, kept * math.exp(3 * LIVE_ERROR) - places)
    median = max(more, 0.1 * most)
    error = max(math.log(max(most, 1.0) / max(median, 1.0)) / 3, 1e-3)
    return RowForecast(median, error, min(most, found.most))


def _exceeds_in_s(state: MemoryState, look: MemorySample, host: HostMemorySample) -> float | None:
    """Seconds until the median forecast reaches the budget; None: not before the end of the run."""
    room = host.budget_bytes - host.used_bytes

    def is_beyond(ahead: float) -> bool:
        found = _growth(state, look, ahead)
        return found is not None and found.median * host.share >= room

    low, high = 0.0, float(look.samples_left)
    if room <= 0:
        return 0.0
    if look.samples_per_s <= 0 or not is_beyond(high):
        return None
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high / look.samples_per_s


def _with_alarm(state: MemoryState, outlook: _Outlook, now_s: float) -> MemoryState:
    """Counts consecutive samples with an alarm."""
    if outlook.chance <= ACT_ABOVE:
        return msgspec.structs.replace(state, above=0)
    above_s = state.above_s if state.above else now_s
    return msgspec.structs.replace(state, above=state.above + 1, above_s=above_s)


def _is_certain(state: MemoryState, look: MemorySample, outlook: _Outlook, seen_s: float, now_s: float) -> bool:
    """Whether enough consecutive samples have an alarm: few if it is urgent, more if there is time. seen_s: seconds
    that the forecast from observed data reaches ahead."""
    if state.above < CONFIRMING_LOOKS:
        return False
    share = CONFIRMING_SHARE if outlook.chance < URGENT_ABOVE else CERTAIN_SHARE
    is_seen = seen_s >= outlook.window_s or state.above >= CONFIRMING_KNOWLEDGE
    if is_seen and now_s - state.above_s >= share * seen_s:
        return True
    return _worst(state, look, ACTIONS_AHEAD * look.action_s).chance > URGENT_ABOVE


def _calm(
    state: MemoryState, look: MemorySample, outlook: _Outlook, now_s: float
) -> tuple[MemoryState, MemoryDecision]:
    """The decision without an alarm: "stay", or a longer horizon if the present one is shorter than necessary."""
    rests = now_s - max(state.lengthened_s, state.acted_s) < LONGER_AFTER * look.action_s
    if look.horizon and look.samples_left and "evict" in look.possible and not rests and look.ages:
        longest = longest_horizon(state.growth, look, shortens_own=look.shortens_own)
        if longest is not None and longest * WORTH_CHANGING > look.horizon:
            horizon = min(longest, round(look.horizon * LATE))
            reason = f"rows are dropped when unseen for {horizon} samples instead of {look.horizon}: {outlook.text}"
            facts = {"horizon": horizon, "shortens_own": look.shortens_own, "wants_ages": True}
            state = msgspec.structs.replace(state, lengthened_s=now_s)
            return state, outlook.decision("evict", reason, **facts)
    reason = outlook.text
    if outlook.exceeds_in_s is None and outlook.may_exceed_by_end:
        reason += "; the run is expected to end before the budget is exceeded"
    wants_ages = outlook.may_exceed_by_end or look.horizon > 0
    return state, outlook.decision("stay", reason, wants_ages=wants_ages)


# --- actions ----------------------------------------------------------------------------------------------------------


def _act(state: MemoryState, look: MemorySample, outlook: _Outlook, now_s: float) -> tuple[MemoryState, MemoryDecision]:
    """Chooses the first possible action that helps; if there is none, the decision is a warning."""
    for action in look.possible:
        decision = _CHOICES[action](state, look, outlook)
        if decision is not None:
            return msgspec.structs.replace(state, acted_s=now_s, above=0), decision
    when = "at any moment" if not outlook.exceeds_in_s else f"in about {outlook.exceeds_in_s:.0f} s"
    if outlook.exceeds_in_s is None:
        when = "possibly before the end of the run"
    is_news = now_s - state.warned_s >= REPEAT_S
    state = msgspec.structs.replace(state, warned_s=now_s if is_news else state.warned_s)
    reason = f"memory will not suffice {when}, and no action can free more: {outlook.text}"
    return state, outlook.decision("warn", reason, is_news=is_news, wants_ages=True)


def _move(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """Moves the share of the host's rows after which the fuller of the two hosts is as far as possible below its
    budget. None: no host can take rows, or the gain is below 5 %."""
    found = _growth(state, look, min(float(look.samples_left), look.samples_per_s * outlook.window_s))
    more = quantile(found, HIGH) if found is not None else 0.0
    source, best = outlook.host, None
    for target in look.hosts:
        if target.host == source.host or not target.may_take:
            continue
        for tenths in range(1, 10):
            share = tenths / 10
            moved = source.place_bytes * share + more * source.share * share
            left = (source.used_bytes + more * source.share - moved) / source.budget_bytes
            there = (target.used_bytes + more * target.share + moved) / target.budget_bytes
            if best is None or max(left, there) < best[0]:
                best = (max(left, there), target, share)
    before = (source.used_bytes + more * source.share) / source.budget_bytes
    if best is None or best[0] > 0.95 * before:
        return None
    reason = f"{best[2]:.0%} of the rows of host {source.host} move to host {best[1].host}: {outlook.text}"
    return outlook.decision("move", reason, target=best[1].host, share=best[2], is_news=True)


def _grows(state: MemoryState, look: MemorySample, outlook: _Outlook) -> bool:
    """Whether rows will need more places than they have. Dropping rows does not give back existing places; it only
    stops the growth."""
    found = _growth(state, look, min(float(look.samples_left), look.samples_per_s * outlook.window_s))
    return found is not None and quantile(found, HIGH) > LEAST_GROWTH * outlook.host.budget_bytes


def _evict(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """The longest horizon that fits. It applies to tables with their own age only if it does not suffice without them.
    None: rows do not grow, or the horizon in force is not worth changing."""
    if not _grows(state, look, outlook):
        return None
    for shortens_own in (look.shortens_own,) if look.shortens_own else (False, True):
        horizon = longest_horizon(state.growth, look, shortens_own=shortens_own)
        if horizon is not None:
            break
    else:
        horizon, shortens_own = look.least_horizon, True
    is_shorter = look.horizon == 0 or horizon < WORTH_CHANGING * look.horizon
    if not is_shorter and (shortens_own == look.shortens_own or look.own_bytes <= 0):
        return None
    before = f" instead of {look.horizon}" if look.horizon else ""
    reason = f"from now on rows are dropped when unseen for {horizon} samples{before}: {outlook.text}"
    return outlook.decision("evict", reason, horizon=horizon, shortens_own=shortens_own, wants_ages=True, is_news=True)


def _admit(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """Doubles the sightings after which an id gets a row, up to MOST_SIGHTINGS."""
    sightings = 2 * look.admit_after
    if sightings > MOST_SIGHTINGS or not _grows(state, look, outlook):
        return None
    reason = f"from now on an id gets a row after {sightings} sightings; dropping rows is not enough: {outlook.text}"
    return outlook.decision("admit", reason, admit_after=sightings, wants_ages=True, is_news=True)


def _shrink(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """Removes the smallest number of workers that makes the memory fit; at least `least_workers` stay. Only for host 0,
    which has the workers."""
    host = outlook.host
    found = _growth(state, look, min(float(look.samples_left), look.samples_per_s * outlook.window_s))
    if host.host != 0 or found is None:
        return None
    for fewer in range(1, look.workers - look.least_workers + 1):
        room = host.budget_bytes - host.used_bytes + fewer * look.worker_bytes
        if room > 0 and chance_beyond(found, room / max(host.share, 1e-9)) <= LEAVES_BELOW:
            left = look.workers - fewer
            text = f"{left} worker{'s' * (left != 1)} instead of {look.workers}"
            reason = f"{text}, which frees {mib(fewer * look.worker_bytes)}: {outlook.text}"
            return outlook.decision("shrink", reason, workers=left, is_news=True)
    return None


_CHOICES = {"move": _move, "evict": _evict, "admit": _admit, "shrink": _shrink}
