// An agent of the official SDK of JavaScript: agent.mjs PORT INTERFACES STREAMS KEY, as in
// `18771 rpc,old 1 key.json`. Does what a2a_sdk.py of tests/servers does.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import {
  AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent, generateAgentCardSignature,
} from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from "@a2a-js/sdk/server/express";
import express from "express";

const INTERFACES = {
  rpc: ["/rpc", "JSONRPC", "1.0"],
  old: ["/rpc", "JSONRPC", "0.3"],
  rest: ["/rest", "HTTP+JSON", "1.0"],
};
const FORM = { schema: { type: "object", properties: { name: { type: "string" } } } };
const LOGIN = "https://login.example.com/start";
const contexts = new Map(); // by task
const [port, names, streams, key] = process.argv.slice(2);

// Publishes the events of one task; objects are given as their JSON.
class Updates {
  constructor(bus, taskId, contextId) {
    Object.assign(this, { bus, ids: { taskId, contextId } });
  }

  message(parts) {
    return { ...this.ids, messageId: randomUUID(), role: "ROLE_AGENT", parts };
  }

  state(name, parts) {
    const message = parts && this.message(parts);
    const status = { state: `TASK_STATE_${name}`, message };
    this.bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ ...this.ids, status })));
  }

  artifact(artifactId, parts, append = false) {
    const event = { ...this.ids, artifact: { artifactId, parts }, append };
    this.bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(event)));
  }
}

async function work(updates, text) {
  if (text === "ask") return updates.state("INPUT_REQUIRED", [{ text: "Who travels?" }, { data: FORM }]);
  if (text === "login") {
    updates.state("AUTH_REQUIRED", [{ text: `Log in at ${LOGIN} first` }]);
    await pause(300);
  }
  if (text === "slow") await pause(60_000);
  if (text === "fail") return updates.state("FAILED", [{ text: "no trains today" }]);
  updates.artifact("a", [{ text: "one " }]);
  updates.artifact("a", [{ text: "two" }], true);
  if (text === "data") {
    updates.artifact("b", [
      { data: { price: 7 } },
      { raw: "aGk=", mediaType: "image/png", filename: "p.png" },
      { url: "https://files.example.com/t.pdf", mediaType: "application/pdf" },
    ]);
  }
  updates.state("COMPLETED");
}

const executor = {
  async execute({ userMessage, taskId, contextId, task }, bus) {
    const parts = Message.toJSON(userMessage).parts;
    const text = parts.find((part) => "text" in part)?.text ?? "";
    const updates = new Updates(bus, taskId, contextId);
    if (text.startsWith("say ")) {
      bus.publish(AgentEvent.message(Message.fromJSON(updates.message([{ text: text.slice(4) }]))));
      return;
    }
    const status = { state: "TASK_STATE_SUBMITTED" };
    const begun = Task.fromJSON({ id: taskId, contextId, status, history: [Message.toJSON(userMessage)] });
    contexts.set(taskId, contextId);
    bus.publish(AgentEvent.task(task ?? begun));
    updates.state("WORKING", [{ text: "reading maps" }]);
    if (task) {
      const data = parts.find((part) => "data" in part)?.data;
      updates.artifact("a", [{ text: `hello ${data?.name ?? text}` }]);
      updates.state("COMPLETED");
    } else {
      await work(updates, text);
    }
  },
  async cancelTask(taskId, bus) {
    new Updates(bus, taskId, contexts.get(taskId)).state("CANCELED");
  },
};

const base = `http://127.0.0.1:${port}`;
const sign = generateAgentCardSignature(JSON.parse(readFileSync(key)), { alg: "ES256", kid: "k1", typ: "JOSE" });
const card = await sign(AgentCard.fromJSON({
  name: "Traveller",
  description: "Plans journeys",
  version: "1",
  supportedInterfaces: names.split(",").map((name) => {
    const [path, protocolBinding, protocolVersion] = INTERFACES[name];
    return { url: base + path, protocolBinding, protocolVersion };
  }),
  capabilities: { streaming: streams === "1" },
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "t", name: "Trips", description: "Plans trips", tags: ["travel"] }],
}));
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
const legacyCompat = { enabled: names.includes("old") };
const options = { requestHandler, legacyCompat, userBuilder: UserBuilder.noAuthentication };
const app = express();
app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
app.use("/rpc", jsonRpcHandler(options));
app.use("/rest", restHandler(options));
app.listen(Number(port), "127.0.0.1");
