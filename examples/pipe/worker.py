import json, sys

def handle(message):
    order = json.loads(message["body"])
    print(f"charging {message['key']}: {order['amount']}", file=sys.stderr)  # goes to the worker's log

for line in sys.stdin:
    message = json.loads(line)
    answer = {"id": message["id"], "result": "done"}
    try:
        handle(message)
    except ValueError as error:  # no further attempt can help
        answer.update(result="give-up", error=str(error))
    except Exception as error:
        answer.update(result="retry", error=repr(error))
    print(json.dumps(answer), flush=True)
