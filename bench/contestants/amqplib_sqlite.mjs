// Node with better-sqlite3, as it is usually done: an insert per message, durable before the ack; a conflict is a
// duplicate. Run from the folder that holds node_modules.
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";
import process from "node:process";

const require = createRequire(`${process.cwd()}/`);
const amqplib = require("amqplib");
const Database = require("better-sqlite3");

const [url, queue, count, path] = process.argv.slice(2);
const messages = Number(count);
const store = new Database(path);
store.pragma("journal_mode = WAL");
store.pragma("synchronous = FULL");
store.exec("CREATE TABLE seen (id TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID");
const insert = store.prepare("INSERT INTO seen VALUES (?, unixepoch()) ON CONFLICT DO NOTHING");
let seen = 0;
let handled = 0;

// The work: none.
function handle(body) {
  handled += 1;
}

const connection = await amqplib.connect(url);
const channel = await connection.createChannel();
await channel.prefetch(1000);
const start = performance.now();
await new Promise((resolve, reject) => {
  channel.on("error", reject);
  channel.consume(queue, (message) => {
    if (message === null) return reject(new Error("the broker ended the consumer"));
    if (insert.run(message.properties.messageId).changes === 1) handle(message.content);
    channel.ack(message);
    seen += 1;
    if (seen === messages) resolve();
  }).catch(reject);
});
await channel.close(); // its answer comes behind the acks
const seconds = (performance.now() - start) / 1000;
await connection.close();
if (handled !== messages) throw new Error(`${handled} of ${messages} were handled`);
console.log(JSON.stringify({ seconds }));
