"""What redis-py sees: every way to send commands, with either version of the protocol. Prints one line an answer."""

import sys

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])
client = redis.Redis(port=port, protocol=protocol, client_name="peers", decode_responses=True)


def show(what, answer):
    print(f"{what}: {answer}")


def throttle(target, key, quantity=1):
    return target.execute_command("CL.THROTTLE", key, 2, 1, 3600, quantity)


key = f"python:{protocol}"
show("ping", client.ping())
show("name", client.client_getname())
for _ in range(4):
    show("throttle", throttle(client, key))
show("peek", throttle(client, key, 0))
show("delete", client.delete(key))
show("after delete", throttle(client, key))

pipeline = client.pipeline(transaction=False)
for _ in range(3):
    throttle(pipeline, f"{key}:pipeline")
show("pipeline", pipeline.execute())

transaction = client.pipeline(transaction=True)
for _ in range(3):
    throttle(transaction, f"{key}:transaction")
show("transaction", transaction.execute())

try:
    client.execute_command("CL.THROTTLE", key, "x", 1, 60)
except redis.ResponseError as error:
    show("error", error)
show("still open", client.ping())

user = f"python-{protocol}"
for _ in range(6):
    answer = client.execute_command("TIDEGATE.CHECK", "api", "user", user)
    # The last two numbers are times, which depend on when it runs.
    show("check", answer[:1])
