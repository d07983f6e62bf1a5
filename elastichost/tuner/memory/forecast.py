"""Memory that will not suffice is seen before it is used up, and what is done about it is chosen. Pure.

    memory used + growth of the rows until then > budget ?

The growth is `memory_growth`'s forecast. Used is all that cannot be given back: the arena, private memory of the
processes, and what is still to come of it even if no row is made any more (an index holds two generations while it
grows, a checkpoint copies the rows). A row's own bytes count all of that too.

Something is done when the chance that a host's budget is exceeded within three times what it takes, five minutes at
least, and before the end of the run, is more than 5 %. What is done, in this order: buckets go to a host with room;
rows that nobody saw for longest are dropped, from the age on (the *horizon*) at which what is left fits; new ids have
to be seen more often before they get a row; a worker fewer trains. What helps nothing is not done: then it is said when
memory will end.
"""

from __future__ import annotations

import math

import msgspec

from elastichost.history.features import Estimates
from elastichost.tuner.memory import growth as memory_growth
from elastichost.tuner.memory.facts import HostMemorySample, MemoryDecision, MemoryKind, MemorySample
from elastichost.tuner.memory.growth import GrowthState, RowForecast, chance_beyond, clipped, forecast, quantile
from elastichost.tuner.memory.horizon import HIGH, LATE, LIVE_ERROR, kept_bytes, longest_horizon, passing_bytes
from elastichost.tuner.memory.prior import prior_of

__all__ = ["MemoryState", "begin", "decide", "predict"]


ACT_ABOVE = 0.4  # chance; at less no more ends are seen in time, and more alarms are false
LEAVES_BELOW = 0.05  # chance, of what an action leaves
LEAST_WINDOW_S = 300.0
ACTIONS_AHEAD = 3.0
WORTH_CHANGING = 0.9  # a horizon is shortened to less than this share of itself, or lengthened by the inverse
LONGER_AFTER = 4.0  # times what an action takes, a horizon stays as it is before it is lengthened
MOST_SIGHTINGS = 64
MOST_AHEAD = 4.0  # times what was seen is looked ahead, or
LEAST_ACTIONS_AHEAD = 1.5
LEAST_GROWTH = 0.005  # of the budget: less is none
REPEAT_S = 60.0  # the same warning
CONFIRMING_LOOKS = 2
CONFIRMING_KNOWLEDGE = 5  # looks, where what is known of jobs like it reaches farther than what was seen
URGENT_ABOVE = 0.5
FORESEEN_ABOVE = 0.95  # of what only jobs like it tell
CONFIRMING_SHARE, CERTAIN_SHARE = 0.3, 0.1  # of the window, if there is time


class MemoryState(msgspec.Struct, frozen=True):
    """growth: the law of new ids. began_s: the first look; acted_s: the last action; lengthened_s: of a horizon; above:
    looks in a row that asked for one, the first of them at above_s; warned_s: the last warning."""

    growth: GrowthState = GrowthState()
    began_s: float | None = None
    acted_s: float = -math.inf
    lengthened_s: float = -math.inf
    above: int = 0
    above_s: float = 0.0
    warned_s: float = -math.inf


def begin(memory: Estimates) -> MemoryState:
    """memory: what jobs like it taught, as `memory_prior` names it; it may be empty."""
    return MemoryState(GrowthState(prior=prior_of(memory)))


def predict(state: MemoryState, look: MemorySample, samples_at: float) -> tuple[float, float]:
    """(median, high) bytes of all hosts together when so many samples are trained, if nothing is done; 95 % are below
    high."""
    used = float(sum(host.used_bytes for host in look.hosts))
    found = forecast(state.growth, clipped(samples_at, look.new_ids_until))
    return (used, used) if found is None else (used + found.median, used + quantile(found, HIGH))


def decide(state: MemoryState, look: MemorySample, now_s: float) -> tuple[MemoryState, MemoryDecision]:
    """Folds one look, and says what is to be done."""
    growth = memory_growth.observe(state.growth, look.samples, look.made_bytes, look.row_bytes)
    began_s = now_s if state.began_s is None else state.began_s
    state = msgspec.structs.replace(state, growth=growth, began_s=began_s)
    window_s = max(ACTIONS_AHEAD * look.action_s, LEAST_WINDOW_S)
    # What was seen for a moment says little of what comes in minutes; and they are not needed yet.
    seen_s = min(window_s, max(MOST_AHEAD * (now_s - began_s), LEAST_ACTIONS_AHEAD * look.action_s))
    outlook = _worst(state, look, seen_s)
    if seen_s < window_s and memory_growth.is_foreknown(growth):
        # What jobs like it taught reaches farther; but it only counts where it leaves little doubt.
        far = _worst(state, look, window_s)
        outlook = far if far.chance > FORESEEN_ABOVE else outlook
    state = _with_alarm(state, outlook, now_s)
    if not _is_certain(state, look, outlook, seen_s, now_s):
        return _calm(state, look, outlook, now_s)
    if now_s - state.acted_s < look.action_s:
        return state, outlook.decision("stay", f"what was done is to take effect: {outlook.text}", wants_ages=True)
    return _act(state, look, outlook, now_s)


# --- how it looks -----------------------------------------------------------------------------------------------------


class _Outlook(msgspec.Struct, frozen=True):
    """Of the host that is likeliest to exceed its budget within the window or by the end of the run."""

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
        when = "by the end of the run" if self.at_end else f"in {self.window_s:.0f} s"
        where = f"host {host.host}: " if host.host else ""
        return (
            f"{where}{_mb(host.used_bytes)} of {_mb(host.budget_bytes)} MB are used, at most {_mb(self.high_bytes)} MB "
            f"{when}; more than there are with a chance of {self.chance:.0%}"
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
    """Bytes by which places of rows grow within so many samples. With a horizon in force freed places are used again,
    so they grow to what it keeps and not beyond."""
    found = forecast(state.growth, clipped(look.samples + ahead, look.new_ids_until))
    if found is None or look.horizon == 0 or look.samples + ahead <= look.horizon:
        return found
    places = sum(host.place_bytes for host in look.hosts)
    kept = kept_bytes(state.growth, look, look.horizon, shortens_own=look.shortens_own)
    kept += passing_bytes(state.growth, look)
    more = max(0.0, kept - places)
    if more >= found.median:
        return found
    # The forecast's form, about what is kept: places + more has an error of LIVE_ERROR.
    most = max(0.0, kept * math.exp(3 * LIVE_ERROR) - places)
    median = max(more, 0.1 * most)
    error = max(math.log(max(most, 1.0) / max(median, 1.0)) / 3, 1e-3)
    return RowForecast(median, error, min(most, found.most))


def _exceeds_in_s(state: MemoryState, look: MemorySample, host: HostMemorySample) -> float | None:
    """When the median reaches the budget; None: not before the end."""
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
    """Counts looks in a row that ask for an action."""
    if outlook.chance <= ACT_ABOVE:
        return msgspec.structs.replace(state, above=0)
    above_s = state.above_s if state.above else now_s
    return msgspec.structs.replace(state, above=state.above + 1, above_s=above_s)


def _is_certain(state: MemoryState, look: MemorySample, outlook: _Outlook, seen_s: float, now_s: float) -> bool:
    """A few looks agree that something has to be done; many, if there is time for them. seen_s: how far ahead what was
    seen reaches."""
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
    """Nothing has to be done; a horizon that is shorter than need be is lengthened."""
    rests = now_s - max(state.lengthened_s, state.acted_s) < LONGER_AFTER * look.action_s
    if look.horizon and look.samples_left and "evict" in look.possible and not rests and look.ages:
        longest = longest_horizon(state.growth, look, shortens_own=look.shortens_own)
        if longest is not None and longest * WORTH_CHANGING > look.horizon:
            horizon = min(longest, round(look.horizon * LATE))
            reason = f"rows may be unseen for {horizon} samples instead of {look.horizon}: {outlook.text}"
            facts = {"horizon": horizon, "shortens_own": look.shortens_own, "wants_ages": True}
            state = msgspec.structs.replace(state, lengthened_s=now_s)
            return state, outlook.decision("evict", reason, **facts)
    reason = outlook.text
    if outlook.exceeds_in_s is None and outlook.may_exceed_by_end:
        reason += "; the run is expected to end before that"
    wants_ages = outlook.may_exceed_by_end or look.horizon > 0
    return state, outlook.decision("stay", reason, wants_ages=wants_ages)


# --- what can be done -------------------------------------------------------------------------------------------------


def _act(state: MemoryState, look: MemorySample, outlook: _Outlook, now_s: float) -> tuple[MemoryState, MemoryDecision]:
    for action in look.possible:
        decision = _CHOICES[action](state, look, outlook)
        if decision is not None:
            return msgspec.structs.replace(state, acted_s=now_s, above=0), decision
    when = "at any moment" if not outlook.exceeds_in_s else f"in about {outlook.exceeds_in_s:.0f} s"
    if outlook.exceeds_in_s is None:
        when = "perhaps before the end of the run"
    is_news = now_s - state.warned_s >= REPEAT_S
    state = msgspec.structs.replace(state, warned_s=now_s if is_news else state.warned_s)
    reason = f"memory will not suffice {when}, and nothing more can be freed: {outlook.text}"
    return state, outlook.decision("warn", reason, is_news=is_news, wants_ages=True)


def _move(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """So many of the host's rows that it and the one they go to come equally near to their budgets."""
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
    reason = f"{best[2]:.0%} of the rows of host {source.host} are to go to host {best[1].host}: {outlook.text}"
    return outlook.decision("move", reason, target=best[1].host, share=best[2], is_news=True)


def _grows(state: MemoryState, look: MemorySample, outlook: _Outlook) -> bool:
    """Whether rows take more memory than they do. What is taken already is not given back by dropping some."""
    found = _growth(state, look, min(float(look.samples_left), look.samples_per_s * outlook.window_s))
    return found is not None and quantile(found, HIGH) > LEAST_GROWTH * outlook.host.budget_bytes


def _evict(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """The longest horizon that fits; with tables that have an age of their own only if it must be."""
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
    reason = f"rows unseen for {horizon} samples{before} are dropped from now on: {outlook.text}"
    return outlook.decision("evict", reason, horizon=horizon, shortens_own=shortens_own, wants_ages=True, is_news=True)


def _admit(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    sightings = 2 * look.admit_after
    if sightings > MOST_SIGHTINGS or not _grows(state, look, outlook):
        return None
    reason = f"an id gets a row at its {sightings}. sighting from now on, dropping rows is not enough: {outlook.text}"
    return outlook.decision("admit", reason, admit_after=sightings, wants_ages=True, is_news=True)


def _shrink(state: MemoryState, look: MemorySample, outlook: _Outlook) -> MemoryDecision | None:
    """As few workers fewer as make it fit, and as many left as the job wants. They are on host 0."""
    host = outlook.host
    found = _growth(state, look, min(float(look.samples_left), look.samples_per_s * outlook.window_s))
    if host.host != 0 or found is None:
        return None
    for fewer in range(1, look.workers - look.least_workers + 1):
        room = host.budget_bytes - host.used_bytes + fewer * look.worker_bytes
        if room > 0 and chance_beyond(found, room / max(host.share, 1e-9)) <= LEAVES_BELOW:
            left = look.workers - fewer
            text = f"{left} worker{'s' * (left != 1)} instead of {look.workers}"
            reason = f"{text} free {_mb(fewer * look.worker_bytes)} MB: {outlook.text}"
            return outlook.decision("shrink", reason, workers=left, is_news=True)
    return None


_CHOICES = {"move": _move, "evict": _evict, "admit": _admit, "shrink": _shrink}


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.0f}"
