"""The programs of `code_shapes` in JavaScript, by the names of their shapes."""

from collections.abc import Mapping

from benchmarks.code_shapes import BODY, TITLE

JAVASCRIPT: Mapping[str, str] = {
    "one read": """\
(await tools.issues_get({owner: "octo", repo: "shop", issue_number: 7})).title""",
    "one write": f"""\
const title = "{TITLE}", body = "{BODY}";
(await tools.issues_create({{owner: "octo", repo: "shop", title, body}})).number""",
    "filter 1 of 200": """\
const {items} = await tools.listCoreV1NamespacedPod({namespace: "shop"});
const crashes = (pod) => pod.status.containerStatuses.some(
  (status) => status.state.waiting?.reason === "CrashLoopBackOff");
items.filter(crashes).map((pod) => pod.metadata.name)""",
    "join two lists": """\
const owing = await tools.GetSubscriptions({status: "past_due", limit: 100});
const customers = await tools.GetCustomers({limit: 100});
const emails = Object.fromEntries(customers.data.map((c) => [c.id, c.email]));
owing.data.map((s) => emails[s.customer]).sort()""",
    "page through 20": """\
const given = {owner: "octo", repo: "shop", per_page: 30};
const counts = {};
for (const page of await tools.pages(tools.repos_list_commits, given, {limit: 50})) {
  for (const {commit} of page) counts[commit.author.name] = (counts[commit.author.name] ?? 0) + 1;
}
return counts;""",
    "loop of 50 reads": """\
const numbers = Array.from({length: 50}, (_, place) => 101 + place);
const pulls = await tools.all(
  numbers.map((n) => tools.pulls_get({owner: "octo", repo: "shop", pull_number: n})));
pulls.filter((pull) => !pull.mergeable).map((pull) => pull.number)""",
    "loop of 50 writes": """\
const repo = {owner: "octo", repo: "shop"};
const issues = await tools.issues_list_for_repo({...repo, per_page: 100});
const made = await tools.all(issues.map(
  ({number}) => tools.issues_add_labels({...repo, issue_number: number, labels: ["stale"]})));
made.length""",
    "conditional chain of 5": """\
const charge = await tools.GetChargesCharge({charge: "ch_0037"});
if (charge.status !== "failed") return "not failed";
const customer = await tools.GetCustomersCustomer({customer: charge.customer});
if (customer.delinquent) return "delinquent";
const {data} = await tools.GetSubscriptions({customer: customer.id});
const {latest_invoice} = data.find((s) => s.status === "past_due");
const invoice = await tools.GetInvoicesInvoice({invoice: latest_invoice});
if (invoice.status !== "open") return invoice.status;
const paid = await tools.PostInvoicesInvoicePay({invoice: latest_invoice});
return [paid.id, paid.status];""",
    "aggregate of 100": """\
const sums = {};
for (const {status, currency, amount} of (await tools.GetCharges({limit: 100})).data) {
  if (status === "succeeded") sums[currency] = (sums[currency] ?? 0) + amount;
}
sums""",
    "error in the middle": """\
const scale = (name, resourceVersion) => tools.replaceAppsV1NamespacedDeploymentScale({
  namespace: "shop", name, spec: {replicas: 3},
  metadata: {name, namespace: "shop", resourceVersion},
});
const again = [];
for (const {metadata} of (await tools.listAppsV1NamespacedDeployment({namespace: "shop"})).items) {
  const {name} = metadata;
  try {
    await scale(name, metadata.resourceVersion);
  } catch (error) {
    if (!error.message.includes("modified")) throw error;
    again.push(name);
    const now = await tools.readAppsV1NamespacedDeploymentScale({namespace: "shop", name});
    await scale(name, now.metadata.resourceVersion);
  }
}
return again;""",
}
