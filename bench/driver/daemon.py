"""Daemons that consume for ever, timed from outside: from the first consumer until their database has all messages."""

import os
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import contextmanager

from .setup import ACKONCE, TOOL, Failed

POLL = 0.002
LIMIT = 900


@contextmanager
def running(command, **options):
    """A process that is asked to stop at the end of the block, and stops."""
    process = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Lines:
    """The lines of a stream, each with the time when it came; read to its end."""

    def __init__(self, stream):
        self.lines = []
        self.changed = threading.Condition()
        self.ended = False
        threading.Thread(target=self.read, args=[stream], daemon=True).start()

    def read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append((time.monotonic(), line))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, text, seconds=LIMIT):
        """When a line with that text came."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while True:
                for at, line in self.lines:
                    if text in line:
                        return at
                if self.ended or not self.changed.wait(deadline - time.monotonic()):
                    said = "".join(line for _, line in self.lines[-5:])
                    raise Failed(f"'{text}' was not said: {said}")


@contextmanager
def watching(queue):
    """The lines of a watch over the queue."""
    command = [TOOL, "watch", queue.name]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        yield Lines(process.stdout)


def wait_until(database, query, expected):
    """When a query's one number reaches what is expected."""
    deadline = time.monotonic() + LIMIT
    while True:
        (number,) = database.execute(query).fetchone()
        if (number or 0) >= expected:
            return time.monotonic()
        if time.monotonic() > deadline:
            raise Failed(f"only {number} of {expected} were done")
        time.sleep(POLL)


def peak_memory_mib(pid):
    """The most memory a process ever held, where the system tells it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            lines = [line.split() for line in status if line.startswith("VmHWM:")]
        return int(lines[0][1]) / 1024
    except (OSError, IndexError):
        return None


def ackonce(queue, messages, ledger, handler, prefetch=1000, more=()):
    """Works through a filled queue with the real worker. Returns seconds, and its peak memory in MiB."""
    command = [ACKONCE, "run", "--queue", queue.name, "--ledger", ledger, "--prefetch", prefetch]
    command += ["--declare", "passive", *more, *handler]
    before = rows(ledger)
    environment = {**os.environ, "ACKONCE_LOG_LEVEL": "info"}
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": environment}
    with watching(queue) as watch, running(command, **options) as process:
        log = Lines(process.stderr)
        start = log.wait_for("consuming from", 60)
        watch.wait_for("{}")
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as database:
            # The last that were prefetched, so that looking costs little; all of them once the clock has stopped.
            last = min(messages, 2 * prefetch)
            done = "SELECT count(*) FROM messages WHERE state = 'done' AND id > "
            end = wait_until(database, f"{done}{before + messages - last}", last)
            wait_until(database, f"{done}{before}", messages)
        memory = peak_memory_mib(process.pid)
    if process.returncode != 0:
        raise Failed(f"ackonce run ended with {process.returncode}: {log.lines[-3:]}")
    return end - start, memory


def rows(ledger):
    """The id of the newest row, 0 if there is no ledger yet."""
    if not os.path.exists(ledger):
        return 0
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as database:
        return database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
