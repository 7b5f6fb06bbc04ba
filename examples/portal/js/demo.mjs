// What a page does: a write, a dashboard of reads in one request, a read that fails by itself.
//
//     node examples/portal/js/demo.mjs [URL]

import { createClient, describe } from "./fetchClient.mjs";

const requests = [];
const client = createClient({
  baseUrl: process.argv[2] ?? "http://127.0.0.1:8765",
  fetch: (url, options) => {
    requests.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});

const rule = (action, data) => ({
  host: "lightapi.net", service: "rule", action, version: "0.1.0", ...(data && { data }),
});
const key = { hostId: "1234567", ruleId: "cors" };
const form = rule("createRule", {
  ...key, ruleName: "Allow our origins", ruleVersion: "1.0.0", ruleType: "request-header",
  ruleOwner: "ann", common: "N", conditions: [],
});

const show = (word, value) => console.log(word.padEnd(13), JSON.stringify(value));

for (const word of ["create", "create again"]) { // the second one is only answered
  show(word, await client.command({ ...form, title: "Create" }, { idempotencyKey: "demo" }));
}
const legacyUrl = `/portal/query?cmd=${encodeURIComponent(JSON.stringify(rule("getRuleCount")))}`;
const before = requests.length;
const [count, labels, missing] = await Promise.allSettled([
  client.fetchClient(legacyUrl), // as pages have it
  client.query(rule("getRuleLabel", { hostId: key.hostId })),
  client.query(rule("getFreshRule", { ...key, ruleId: "nobody knows" })),
]);
show("count", count.value);
show("labels", labels.value);
show("missing", describe(missing.reason.thrown));
show("requests", requests.length - before);
show("members", requests.at(-1).length);
show("delete", await client.command(rule("deleteRule", key)));
show("no owner", describe((await client.command(rule("createRule", key))).error));
