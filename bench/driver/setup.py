"""What the measurements need: the broker, our programs, and the dependencies of the others, installed below target/bench."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = REPO / "target" / "bench"
ACKONCE = REPO / "target" / "release" / "ackonce"
TOOL = REPO / "target" / "release" / "examples" / "bench-tool"
CONTESTANTS = REPO / "bench" / "contestants"
BODY = "x" * 256
MQ_BRIDGE_VERSION = "1.3.0"


class Failed(Exception):
    """One sentence for the user."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, seconds=600, **options):
    """Runs a command within a time; its output is shown only if it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.STDOUT),
            text=True,
            timeout=seconds,
            **options,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} took more than {seconds} s") from None
    if done.returncode != 0:
        said = (done.stdout + (done.stderr or "")).strip()
        raise Failed(f"{' '.join(str(word) for word in command[:3])} … failed with {done.returncode}: {said[-2000:]}")
    return done.stdout


def tool(*arguments, seconds=600):
    """One run of bench-tool; returns what it says."""
    said = run([TOOL, *arguments], seconds, stderr=subprocess.PIPE)
    return json.loads(said.splitlines()[-1])


def prepare(build):
    """A broker (its URL goes to the environment) and release builds of our programs."""
    os.environ["AMQP_URL"] = run([REPO / "scripts" / "broker", "up"], 1200, stderr=None).strip()
    if build:
        say("building (some minutes the first time)")
        what = ["--release", "--locked", "--quiet", "--bin", "ackonce", "--example", "bench-tool"]
        run(["cargo", "build", *what], 3600, cwd=REPO)
    CACHE.mkdir(parents=True, exist_ok=True)


def package(program, name):
    """Installs a package of the system unless the program is there."""
    if shutil.which(program) is None:
        code = f'. "{REPO}/scripts/lib.sh"; install_package {name}'
        run(["bash", "-euc", code, "bench"], 1800, stderr=None)


def python():
    """A Python with pika and redis."""
    venv = CACHE / "venv"
    if not (venv / "ready").exists():
        say("installing pika and redis for Python")
        run([sys.executable, "-m", "venv", "--clear", venv])
        run([venv / "bin" / "pip", "install", "--quiet", "pika", "redis[hiredis]"], 900)
        (venv / "ready").touch()
    return venv / "bin" / "python"


def node():
    """A folder with node_modules."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Failed("Node is not installed")
    folder = CACHE / "node"
    if not (folder / "ready").exists():
        say("installing amqplib and better-sqlite3 for Node (minutes, where it has to be compiled)")
        folder.mkdir(parents=True, exist_ok=True)
        run(["npm", "install", "--no-audit", "--no-fund", "amqplib", "better-sqlite3@12"], 1800, cwd=folder)
        (folder / "ready").touch()
    return folder


def mq_bridge(build):
    """How to run it, with the file of its routes as a further argument, and what it is called: the program, if it is
    installed or to be built; else the Python package, which is the same engine, one version older."""
    program = shutil.which("mq-bridge-app") or CACHE / "mq-bridge" / "bin" / "mq-bridge-app"
    if build and not Path(program).exists():
        say("building mq-bridge-app (ten to thirty minutes)")
        features = "amqp,middleware,sqlx,mimalloc"
        command = ["cargo", "install", "mq-bridge-app", "--locked", "--version", MQ_BRIDGE_VERSION]
        command += ["--no-default-features", "--features", features, "--root", CACHE / "mq-bridge"]
        run(command, 5400)
    if Path(program).exists():
        version = run([program, "--version"]).split()[-1]
        return [program, "--no-ui", "--no-metrics", "--config"], f"mq-bridge-app {version}"
    venv = CACHE / "mq-bridge-venv"
    if not (venv / "ready").exists():
        say("installing mq-bridge for Python")
        run([sys.executable, "-m", "venv", "--clear", venv])
        run([venv / "bin" / "pip", "install", "--quiet", "mq-bridge"], 900)
        (venv / "ready").touch()
    code = "from importlib.metadata import version; print(version('mq-bridge'))"
    version = run([venv / "bin" / "python", "-c", code]).strip()
    return [venv / "bin" / "python", CONTESTANTS / "mq_bridge_route.py"], f"mq-bridge {version} (Python package)"


class Queue:
    """A durable queue of our own, deleted at the end of the block, which must find it empty."""

    def __init__(self, kind):
        self.name = f"ackonce.bench.{uuid.uuid4().hex}"
        self.kind = kind

    def __enter__(self):
        tool("declare", self.name, "--queue-type", self.kind)
        return self

    def fill(self, messages, body=BODY):
        """Persistent messages, each with its own UUIDv7 as message_id, all confirmed."""
        if messages:
            run([ACKONCE, "publish", "--queue", self.name, "--count", messages, "--quiet", body], 1200)

    def purge(self):
        return tool("purge", self.name)["messages"]

    def __exit__(self, kind, error, trace):
        left = tool("delete", self.name)["messages"]
        if kind is None and left:
            raise Failed(f"{left} messages were left in the queue")
