"""The ratios that ackonce promises itself: each is measured beside its reference, round after round."""

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from . import daemon, setup
from .report import ratios
from .setup import ACKONCE, BODY, REPO, Queue, run, tool

CONCURRENCY = 8
WINDOW = 1000


class Target:
    """What is promised: a bound, and whether more or less is better."""

    def __init__(self, name, title, bound, measure, unit="", at_most=False):
        self.name, self.title, self.bound, self.unit = name, title, bound, unit
        self.measure, self.at_most = measure, at_most

    def holds(self, value):
        return value <= self.bound if self.at_most else value >= self.bound

    def promise(self):
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}{self.unit}"


def rounds_of(options):
    """Numbers the rounds, each with a folder of its own on the disk to be measured."""
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=setup.CACHE) as folder:
            yield number, Path(folder)


def in_turn(number, *measurements):
    """Runs them in an order that changes with the round; returns what they say in their own order."""
    results = {}
    for index in sorted(range(len(measurements)), reverse=number % 2 == 1):
        results[index] = measurements[index]()
    return [results[index] for index in range(len(measurements))]


def worked(options, messages, ledger, handler, prefetch=1000, more=()):
    """Seconds and peak memory of the real worker on a queue that was filled for it."""
    with Queue(options.queue_type) as queue:
        queue.fill(messages)
        return daemon.ackonce(queue, messages, ledger, handler, prefetch, more)


def exec_true(options):
    """A command that does nothing ÷ starting it and waiting for it, and nothing else."""
    runs = options.runs
    ours, bare = [], []
    more = ["--concurrency", CONCURRENCY]
    for number, folder in rounds_of(options):
        a, b = in_turn(
            number,
            lambda: worked(options, runs, folder / "exec.db", ["--exec", "/bin/true"], 64, more)[0],
            lambda: tool("spawn", "--runs", runs, "--concurrency", CONCURRENCY, "/bin/true")["seconds"],
        )
        ours.append(runs / a)
        bare.append(runs / b)
    return ratios(ours, bare), {"ackonce": ours, "spawn and wait": bare}


def pipe(options):
    """A Python program that stays ÷ the same program started for each message."""
    program = REPO / "bench" / "contestants" / "echo.py"
    runs, many = max(options.runs // 10, 200), options.runs * 5
    piped, started = [], []
    more = ["--concurrency", CONCURRENCY]
    python = [sys.executable, program]
    for number, folder in rounds_of(options):
        a, b = in_turn(
            number,
            lambda: worked(options, many, folder / "pipe.db", ["--pipe", *python, "pipe"], 64, more)[0],
            lambda: worked(options, runs, folder / "exec.db", ["--exec", *python], 64, more)[0],
        )
        piped.append(many / a)
        started.append(runs / b)
    return ratios(piped, started), {"pipe": piped, "exec": started}


def publish(options):
    """`ackonce publish --count` ÷ a publisher with the same window; both from start to exit."""
    ours, raw = [], []
    many = ["--count", options.messages, "--window", WINDOW, "--quiet", BODY]
    for number, _ in rounds_of(options):
        with Queue(options.queue_type) as first, Queue(options.queue_type) as second:
            a, b = in_turn(
                number,
                lambda: seconds_of([ACKONCE, "publish", "--queue", first.name, *many]),
                lambda: seconds_of(
                    [setup.TOOL, "publish", second.name, "--messages", options.messages]
                    + ["--window", WINDOW, "--body", BODY]
                ),
            )
            for queue in (first, second):
                if queue.purge() != options.messages:
                    raise setup.Failed("not all messages arrived")
        ours.append(options.messages / a)
        raw.append(options.messages / b)
    return ratios(ours, raw), {"ackonce publish": ours, "raw publisher": raw}


def seconds_of(command):
    start = time.perf_counter()
    run(command, 900)
    return time.perf_counter() - start


def memory(options):
    """Of the real worker, in MiB, while it works through a backlog."""
    peaks = []
    for _, folder in rounds_of(options):
        peaks.append(worked(options, options.messages, folder / "memory.db", ["--log"])[1])
    if None in peaks:
        raise setup.Failed("this system does not tell a process's peak memory")
    return peaks, {"MiB": peaks}


def latency(options):
    """99th percentile of the full path less that of the raw consumer, in milliseconds, at 1,000 messages/s."""
    added, raw, full = [], [], []
    for _, folder in rounds_of(options):
        arguments = ["--messages", 5000, "--rate", 1000, "--queue-type", options.queue_type, "--folder", folder]
        said = tool("latency", *arguments)
        raw.append(said["raw"]["p99"])
        full.append(said["full"]["p99"])
        added.append(said["full"]["p99"] - said["raw"]["p99"])
    parts = {"raw p99 ms": raw, "full p99 ms": full}
    if median(raw) > 5:
        # Two large numbers that mean nothing have a small difference now and then.
        return added, parts, "in doubt: the raw consumer alone takes longer"
    return added, parts


def rows(kind):
    """Rate over a ledger with many rows ÷ rate over an empty one."""

    def measure(options):
        full, empty = [], []
        with tempfile.TemporaryDirectory(dir=setup.CACHE) as seeded:
            ledger = Path(seeded) / "rows.db"
            setup.say(f"filling a ledger with {options.rows:,} rows")
            tool("seed", ledger, "--rows", options.rows, "--keys", kind, seconds=7200)
            for number, folder in rounds_of(options):
                a, b = in_turn(
                    number,
                    lambda: worked_keys(options, kind, ledger),
                    lambda: worked_keys(options, kind, folder / "empty.db"),
                )
                full.append(options.messages / a)
                empty.append(options.messages / b)
        return ratios(full, empty), {f"{options.rows:,} rows": full, "no rows": empty}

    return measure


def worked_keys(options, kind, ledger):
    with Queue(options.queue_type) as queue:
        tool("publish", queue.name, "--messages", options.messages, "--body", BODY, "--keys", kind)
        return daemon.ackonce(queue, options.messages, ledger, ["--log"])[0]


def prune(options):
    """99th percentile of a claim of 100 messages while old rows are pruned, in milliseconds."""
    during, alone = [], []
    for _, folder in rounds_of(options):
        said = tool("prune", "--rows", options.pruned, "--folder", folder, seconds=3600)
        during.append(said["during"]["p99"])
        alone.append(said["alone"]["p99"])
    return during, {"alone p99 ms": alone, "during p99 ms": during}


ALL = [
    Target("exec", "`--exec /bin/true` ÷ bare spawn-and-wait, 8 at a time", 0.85, exec_true),
    Target("pipe", "`--pipe` ÷ `--exec`, the same Python program", 10, pipe, " ×"),
    Target("publish", "`publish --count` ÷ raw publisher, window 1000", 0.95, publish),
    Target("memory", "peak memory, prefetch 1000, 256-byte bodies", 40, memory, " MiB", at_most=True),
    Target("latency", "latency added at 1,000 messages/s, 99 %", 5, latency, " ms", at_most=True),
    Target("rows-uuid7", "rate with many rows ÷ with none, UUIDv7", 0.85, rows("uuid7")),
    Target("rows-uuid4", "rate with many rows ÷ with none, UUIDv4", 0.70, rows("uuid4")),
    Target("prune", "a claim of 100 while old rows are pruned, 99 %", 50, prune, " ms", at_most=True),
]


def measured(target, options):
    """The median and what it was made of."""
    values, parts, *doubt = target.measure(options)
    verdict = "holds" if target.holds(median(values)) else "missed"
    return {
        "value": median(values),
        "values": values,
        "verdict": doubt[0] if doubt else verdict,
        "parts": {name: sorted(part) for name, part in parts.items()},
        "load": os.getloadavg()[0],
    }
