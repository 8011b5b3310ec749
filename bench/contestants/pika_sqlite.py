"""Python with SQLite, as it is usually done: an insert per message, durable before the ack; a conflict is a duplicate."""

import json
import sqlite3
import sys
import time

import pika

url, queue, messages, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
store = sqlite3.connect(path, isolation_level=None)  # each statement commits
store.execute("PRAGMA journal_mode = WAL")
store.execute("PRAGMA synchronous = FULL")
store.execute("CREATE TABLE seen (id TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID")
seen = handled = 0


def handle(body):
    """The work: none."""
    global handled
    handled += 1


def on_message(channel, method, properties, body):
    global seen
    insert = "INSERT INTO seen VALUES (?, unixepoch()) ON CONFLICT DO NOTHING"
    if store.execute(insert, (properties.message_id,)).rowcount == 1:
        handle(body)
    channel.basic_ack(method.delivery_tag)
    seen += 1
    if seen == messages:
        channel.stop_consuming()


connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
channel.basic_qos(prefetch_count=1000)
start = time.perf_counter()
channel.basic_consume(queue, on_message)
channel.start_consuming()
channel.close()  # its answer comes behind the acks
seconds = time.perf_counter() - start
connection.close()
assert handled == messages, f"{handled} of {messages} were handled"
print(json.dumps({"seconds": seconds}))
