// What ioredis sees: single commands, a pipeline and a transaction. Prints one line an answer.
const Redis = require("ioredis");

const client = new Redis({ port: Number(process.argv[2]), maxRetriesPerRequest: 0, retryStrategy: null });
const show = (what, answer) => console.log(`${what}: ${JSON.stringify(answer)}`);
const limit = [2, 1, 3600];

async function main() {
  show("ping", await client.ping());
  for (let i = 0; i < 4; i++) show("throttle", await client.call("CL.THROTTLE", "node", ...limit));
  show("delete", await client.del("node"));

  const pipeline = client.pipeline();
  for (let i = 0; i < 3; i++) pipeline.call("CL.THROTTLE", "node:pipeline", ...limit);
  show("pipeline", await pipeline.exec());

  const multi = client.multi();
  for (let i = 0; i < 3; i++) multi.call("CL.THROTTLE", "node:multi", ...limit);
  show("multi", await multi.exec());

  // Commands that are sent together without waiting keep their order.
  const together = [0, 1, 2].map(() => client.call("CL.THROTTLE", "node:together", ...limit));
  show("together", await Promise.all(together));

  await client.call("CL.THROTTLE", "node", "x", 1, 60).catch((error) => show("error", error.message));
  show("quit", await client.quit());
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
