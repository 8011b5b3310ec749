"""Python with Redis, as it is usually done: SET NX EX claims the message id, then the work, then the ack."""

import json
import sys
import time

import pika
import redis

url, queue, messages, redis_port = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = redis.Redis(port=redis_port)
store.ping()
DAY = 24 * 3600
seen = handled = 0


def handle(body):
    """The work: none."""
    global handled
    handled += 1


def on_message(channel, method, properties, body):
    global seen
    if store.set(f"{queue}:{properties.message_id}", 1, nx=True, ex=DAY):
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
