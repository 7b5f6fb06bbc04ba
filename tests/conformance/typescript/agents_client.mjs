// The official SDK of JavaScript as a client of the scripted agent: agents_client.mjs URL SIGNER; the
// cards of SIGNER are signed.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { verifyAgentCardSignature } from "@a2a-js/sdk";
import { ClientFactory } from "@a2a-js/sdk/client";
import { importJWK } from "jose";

const COMPLETED = 3;
const CANCELED = 5;
const client = await new ClientFactory().createFromUrl(process.argv[2]);

function message(prefix) {
  const content = { $case: "text", value: "hello" };
  const part = { content, filename: "", mediaType: "", metadata: undefined };
  return {
    message: {
      messageId: `${prefix}-${randomUUID()}`, role: 1, parts: [part], contextId: "", taskId: "",
      extensions: [], referenceTaskIds: [], metadata: undefined,
    },
    tenant: "", configuration: undefined, metadata: undefined,
  };
}

const task = await client.sendMessage(message("tck-artifact-text"));
assert.equal(task.status.state, COMPLETED);
assert.equal(task.artifacts[0].parts[0].content.value, "Generated text content");

const kinds = [];
for await (const event of client.sendMessageStream(message("tck-stream-003"))) {
  kinds.push(event.payload.$case);
}
assert.equal(kinds[0], "task");
assert.equal(kinds.at(-1), "statusUpdate");

const found = await client.getTask({ tenant: "", id: task.id, historyLength: undefined });
assert.equal(found.status.state, COMPLETED);
const open = await client.sendMessage(message("tck-input-required"));
const cancelled = await client.cancelTask({ tenant: "", id: open.id, metadata: undefined });
assert.equal(cancelled.status.state, CANCELED);
console.log("@a2a-js/sdk: ok");

const read = async (path) => (await fetch(process.argv[3] + path)).json();
const { keys } = await read("/.well-known/jwks.json");
const verify = verifyAgentCardSignature((kid) => importJWK(keys.find((key) => key.kid === kid)));
const card = await read("/.well-known/agent-card.json");
await verify(card);
console.debug = () => {}; // its reasons
await assert.rejects(verify({ ...card, name: "another" }));
console.log("@a2a-js/sdk: signature of a card ok");
