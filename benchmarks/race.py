"""Interleaved runs: contenders alternate on the same core, each right after the floor; the result
is the median of the ratios."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from benchmarks.load import Subject
from benchmarks.report import Report
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing, ratio, ratios

BUSY = 0.85  # below this share of its core, something else was the limit


@dataclass(frozen=True, slots=True)
class Entry:
    """Somebody who should run; `arrive` starts and checks it, or raises Unavailable."""

    name: str
    arrive: Callable[[], Subject]
    calls: int = 1  # tool calls in one request
    stretch: int = 1  # longer slices for slow requests: those cut off at the end do not count
    unit: str = "calls/s"
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class Track:
    """What one contender did, round by round, and what the floor did just before."""

    entry: Entry
    subject: Subject
    warm: Report
    reports: list[Report] = field(default_factory=list)
    floors: list[Report] = field(default_factory=list)

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(report.per_s * self.entry.calls for report in self.reports)

    @property
    def floor_rates(self) -> tuple[float, ...]:
        return tuple(report.per_s for report in self.floors)

    @property
    def cpu_rates(self) -> tuple[float, ...]:
        """Per CPU second of the tested process: what is left when others want its core too."""
        return tuple(report.per_cpu_s * self.entry.calls for report in self.reports)

    @property
    def floor_cpu_rates(self) -> tuple[float, ...]:
        return tuple(report.per_cpu_s for report in self.floors)


@dataclass(frozen=True, slots=True)
class Heat:
    """Who ran, beside which floor; rows for those who could not."""

    base: Track
    tracks: Sequence[Track]
    absent: Sequence[Row]

    def track(self, entry: Entry) -> Track | None:
        return next((track for track in self.tracks if track.entry is entry), None)

    def rows(self, peer: Entry | None = None) -> list[Row]:
        """A row each: the floor, who ran, who could not. `peer` is the one to compare with."""
        rival = None if peer is None else self.track(peer)
        floor = _floor_row(self.base, self.tracks, rival)
        return [*floor, *(_row(track, rival) for track in self.tracks), *self.absent]


def race(rig: Rig, floor: Entry, entries: Sequence[Entry], peer: Entry | None = None) -> list[Row]:
    return compete(rig, floor, entries).rows(peer)


def compete(rig: Rig, floor: Entry, entries: Sequence[Entry]) -> Heat:
    base = _warm(rig, floor)
    tracks, absent = _line_up(rig, entries)
    for number in range(1, rig.rounds + 1):
        for track in tracks:
            rig.say(f"round {number} of {rig.rounds}: {track.entry.name}")
            track.floors.append(_measure(rig, base))
            track.reports.append(_measure(rig, track))
    return Heat(base, tracks, absent)


def _line_up(rig: Rig, entries: Sequence[Entry]) -> tuple[list[Track], list[Row]]:
    tracks, absent = [], []
    for entry in entries:
        try:
            tracks.append(_warm(rig, entry))
        except (Unavailable, OSError) as reason:
            absent.append(missing(entry.name, entry.unit, str(reason), entry.targets))
    return tracks, absent


def _warm(rig: Rig, entry: Entry) -> Track:
    subject = entry.arrive()
    rig.say(f"warming up: {entry.name}")
    return Track(entry, subject, rig.load.warm_up(subject, rig.slice_s * entry.stretch))


def _measure(rig: Rig, track: Track) -> Report:
    """A contender that breaks down counts as one that answered nothing."""
    seconds = rig.slice_s * track.entry.stretch
    try:
        return rig.load.saturate(track.subject, seconds, track.warm)
    except Unavailable:
        return Report(0, seconds, 1, 0.0, 0.0, 0.0, 0.0)


def _floor_row(base: Track, tracks: Sequence[Track], rival: Track | None) -> list[Row]:
    base.reports.extend(report for track in tracks for report in track.floors)
    if not base.reports:
        return []
    row = _row(base, None)
    x_peer = ratio(rival.floor_rates, rival.rates) if rival else None
    return [msgspec.structs.replace(row, x_peer=x_peer)]


def _row(track: Track, rival: Track | None) -> Row:
    entry, rates = track.entry, track.rates
    busy = statistics.median(report.busy for report in track.reports)
    return Row(
        scenario=entry.name,
        value=statistics.median(rates),
        unit=entry.unit,
        x_floor=ratio(rates, track.floor_rates),
        x_floor_cpu=ratio(track.cpu_rates, track.floor_cpu_rates),
        x_peer=ratio(rates, rival.rates) if rival and rival is not track else None,
        targets=entry.targets,
        errors=sum(report.errors for report in track.reports),
        note="" if busy >= BUSY else f"used {busy:.0%} of its core only",
        rounds=rates,
        x_floor_rounds=ratios(rates, track.floor_rates),
    )
