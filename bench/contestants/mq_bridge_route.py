"""Runs a route of mq-bridge by its Python package: no Python is called for a message. The argument is the route's file."""

import json
import signal
import sys

import mq_bridge

with open(sys.argv[1], encoding="utf-8") as file:
    routes = json.load(file)["routes"]
signal.signal(signal.SIGTERM, lambda *_: mq_bridge.request_shutdown())
mq_bridge.Route.from_config(routes["bench"], name="bench").run()
