"""Tables, for people and for the README, and the machine they were made on."""

import os
import platform
import socket
import tempfile
import time
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from .setup import CACHE, REPO, Failed


def table(rows, markdown):
    """Rows of texts, the first one the heading; all columns but the first are numbers."""
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "| --- |" + " ---: |" * (len(rows[0]) - 1))
        return "\n".join(lines)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = zip(row, widths)
        lines.append("  ".join([first[0].ljust(first[1])] + [text.rjust(width) for text, width in others]))
    return "\n".join(lines)


def ratios(over, under):
    """Each round's ratio: whatever slows the machine down in a round slows both."""
    return [a / b for a, b in zip(over, under)]


def spread(values, form="{:.2f}"):
    """Median and range."""
    texts = [form.format(value) for value in (median(values), min(values), max(values))]
    return "{} ({} to {})".format(*texts)


def machine():
    """What it was measured on."""
    cpu = platform.processor() or platform.machine()
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        cpu = next(line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    load = f"load {os.getloadavg()[2]:.1f}"
    return f"{os.cpu_count()} cores, {cpu}, {system}, {load}; an fsync takes {fsync_ms():.1f} ms; RabbitMQ {broker_version()}"


def fsync_ms():
    """Median time for a page to reach the disk: who commits for each message waits for it each time."""
    times = []
    with tempfile.TemporaryFile(dir=CACHE) as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return median(times) * 1000


def broker_version():
    """As the broker says it in its greeting."""
    url = urlsplit(os.environ["AMQP_URL"])
    try:
        with socket.create_connection((url.hostname or "127.0.0.1", url.port or 5672), timeout=5) as stream:
            stream.sendall(b"AMQP\0\0\x09\x01")
            greeting = stream.recv(4096)
    except OSError:
        return "of an unknown version"
    # A field of a table: its name's length and name, S for a long string, its length, and the text.
    _, found, rest = greeting.partition(b"\x07versionS")
    length = int.from_bytes(rest[:4], "big")
    return rest[4 : 4 + length].decode("ascii", "replace") if found else "of an unknown version"


def into_readme(name, text):
    """Replaces what stands between the marks of that name in README.md."""
    readme = REPO / "README.md"
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, found, rest = readme.read_text(encoding="utf-8").partition(begin)
    _, also, after = rest.partition(end)
    if not found or not also:
        raise Failed(f"README.md has no marks {begin.strip()} and {end.strip()}")
    readme.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")
