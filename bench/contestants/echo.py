"""A handler that reads a message and is done: once (--exec), or for every line (--pipe, with the argument pipe)."""

import json
import sys

if sys.argv[1:] == ["pipe"]:
    for line in sys.stdin:
        message = json.loads(line)
        print(json.dumps({"id": message["id"], "result": "done"}), flush=True)
else:
    sys.stdin.buffer.read()
