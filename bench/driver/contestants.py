"""Who is compared: each takes the same number of messages from a queue of its own, once each, and says how long it took."""

import json
import os
import socket
import sqlite3
import subprocess
import time
from pathlib import Path

from . import daemon, setup
from .setup import CONTESTANTS, Failed, run, tool


class Raw:
    """A consumer in Rust that does nothing but ack every hundredth message."""

    name, title = "raw", "raw lapin consumer, no deduplication"
    queue_types = ("classic", "quorum")

    def prepare(self, options):
        pass

    def consume(self, queue, messages, folder):
        return tool("consume", queue.name, "--messages", messages)["seconds"]

    def close(self):
        pass


class Ackonce(Raw):
    """The real worker: `--log` with its output thrown away is the handler that does the least."""

    name, title = "ackonce", "**ackonce** (`ackonce run`)"

    def consume(self, queue, messages, folder):
        return daemon.ackonce(queue, messages, folder / "ackonce.db", ["--log"])[0]


class PikaRedis(Raw):
    """Redis as packaged, with its usual snapshots: it may lose the last minutes of claims in a crash."""

    name, title = "pika-redis", "Python, pika + Redis (`SET NX EX`)"

    def prepare(self, options):
        self.python = setup.python()
        setup.package("redis-server", "redis-server")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.dir = setup.CACHE / "redis"
        self.dir.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir)]
        self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise Failed("redis-server does not start")
            time.sleep(0.05)

    def consume(self, queue, messages, folder):
        return script([self.python, CONTESTANTS / "pika_redis.py"], queue, messages, self.port)

    def close(self):
        self.server.terminate()
        self.server.wait(30)
        (self.dir / "dump.rdb").unlink(missing_ok=True)


class PikaSqlite(Raw):
    name, title = "pika-sqlite", "Python, pika + SQLite (`INSERT … ON CONFLICT`)"

    def prepare(self, options):
        self.python = setup.python()

    def consume(self, queue, messages, folder):
        path = folder / "pika.db"
        return script([self.python, CONTESTANTS / "pika_sqlite.py"], queue, messages, path)


class AmqplibSqlite(Raw):
    name, title = "amqplib-sqlite", "Node, amqplib + better-sqlite3"

    def prepare(self, options):
        self.folder = setup.node()

    def consume(self, queue, messages, folder):
        command = ["node", CONTESTANTS / "amqplib_sqlite.mjs"]
        return script(command, queue, messages, folder / "node.db", cwd=self.folder)


class MqBridge(Raw):
    """Its AMQP input with the deduplication middleware over SQLite; output thrown away. Timed from outside."""

    name, title = "mq-bridge", "mq-bridge, SQLite deduplication"
    queue_types = ("classic",)  # it declares its queue, as a classic one

    def prepare(self, options):
        self.command, version = setup.mq_bridge(options.build_mq_bridge)
        self.title = f"{version}, SQLite deduplication"

    def consume(self, queue, messages, folder):
        path = folder / "mq-bridge.db"
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA journal_mode = WAL")  # stays with the file; without it, it is slower
        dedup = {"store": f"sqlite://{path}", "ttl_seconds": 86400}
        amqp = {"url": os.environ["AMQP_URL"], "queue": queue.name, "prefetch_count": 1000}
        source = {"middlewares": [{"deduplication": dedup}], "amqp": amqp}
        # The defaults of its program, which are higher than those of its library.
        route = {"input": source, "output": {"null": None}, "concurrency": 4, "batch_size": 1024}
        config = folder / "mq-bridge.json"
        config.write_text(json.dumps({"routes": {"bench": route}}))
        log = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": folder}
        with daemon.watching(queue) as watch, daemon.running([*self.command, config], **log) as process:
            daemon.Lines(process.stdout)
            start = watch.wait_for("consuming", 60)
            watch.wait_for("{}")
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                done = "SELECT count(*) FROM mqb_dedup_bench WHERE expire_at >= 0"  # negative: in flight
                return daemon.wait_until(database, done, messages) - start


def script(command, queue, messages, store, **options):
    """A program that takes URL, queue, number of messages and store, and prints its own clock."""
    arguments = [os.environ["AMQP_URL"], queue.name, messages, store]
    said = run([*command, *arguments], 1800, stderr=subprocess.PIPE, **options)
    return json.loads(said.splitlines()[-1])["seconds"]


ALL = [Raw(), Ackonce(), MqBridge(), AmqplibSqlite(), PikaSqlite(), PikaRedis()]
