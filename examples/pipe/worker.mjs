import { createInterface } from "node:readline";

async function handle(message) {
  const order = JSON.parse(message.body);
  if (!("amount" in order)) throw new Error("no amount");
  console.error(`charging ${message.key}: ${order.amount}`); // goes to the worker's log
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  const answer = { id: message.id, result: "done" };
  await handle(message).catch((error) => {
    answer.result = error instanceof SyntaxError ? "give-up" : "retry"; // for the first, no attempt can help
    answer.error = String(error);
  });
  process.stdout.write(JSON.stringify(answer) + "\n");
}
