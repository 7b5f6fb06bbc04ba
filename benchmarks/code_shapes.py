"""Ten tasks, each as direct calls and as a program: what an agent would send that makes no
mistake, with the best use of search mode, pages and `_fields`.

The services are those of `code_services`. The direct calls that need nothing of each other are
made together.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from benchmarks.code_services import Facts

REPO = {"owner": "octo", "repo": "shop"}
SHOP = {"namespace": "shop"}


class Agent(Protocol):
    """Answers are the JSON that is shown; None for a call that failed."""

    async def call(self, name: str, /, **arguments: Any) -> Any: ...

    async def calls(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Calls that need nothing of each other."""

    async def pages(self, name: str, /, **arguments: Any) -> list[Any]:
        """All pages, each called for when the one before has been read."""


class Shape(Struct, frozen=True):
    """`query` finds the `tools`. `slip`: a part of the program, and what a first attempt has in its
    place. `check`: whether the answer is right, by the state of the services before and after."""

    name: str
    task: str
    query: str
    tools: tuple[str, ...]
    direct: Callable[[Agent], Awaitable[Any]]
    program: str
    slip: tuple[str, str]
    check: Callable[[Facts, Facts, Any], bool]
    writes: bool = False

    @property
    def mistaken(self) -> str:
        return self.program.replace(*self.slip, 1)


async def _read(agent: Agent) -> Any:
    issue = await agent.call("issues_get", **REPO, issue_number=7, _fields=["title"])
    return issue["title"]


READ = Shape(
    "one read", "What is the title of issue 7 of octo/shop?", "Get an issue.", ("issues_get",),
    _read,
    'tools.issues_get(owner="octo", repo="shop", issue_number=7)["title"]',
    ("issue_number", "number"),
    lambda before, _, answer: answer == before["issues"]["7"]["title"],
)  # fmt: skip

TITLE, BODY = "Basket is empty after login", "Since release 4.2 the basket is empty after a login."


async def _write(agent: Agent) -> Any:
    issue = await agent.call("issues_create", **REPO, title=TITLE, body=BODY, _fields=["number"])
    return issue["number"]


WRITE = Shape(
    "one write",
    f"Open an issue in octo/shop: {TITLE!r}. {BODY} Which number has it?",
    "Create an issue.", ("issues_create",), _write,
    f'tools.issues_create(owner="octo", repo="shop", title="{TITLE}", body="{BODY}")["number"]',
    ("title", "name"),
    lambda before, after, answer: (
        after["issues"].get(str(answer), {}).get("title") == TITLE
        and len(after["issues"]) == len(before["issues"]) + 1
    ),
    writes=True,
)  # fmt: skip


async def _filter(agent: Agent) -> Any:
    reason = "status.containerStatuses.state.waiting.reason"
    pods = await agent.call(
        "listCoreV1NamespacedPod", **SHOP, _fields=["items.metadata.name", f"items.{reason}"]
    )
    return [
        pod["metadata"]["name"]
        for pod in pods["items"]
        if any(status["state"] for status in pod["status"]["containerStatuses"])
    ]


FILTER = Shape(
    "filter 1 of 200", "Which pods of the namespace shop are in CrashLoopBackOff?",
    "List the pods of a namespace.", ("listCoreV1NamespacedPod",), _filter,
    """\
pods = tools.listCoreV1NamespacedPod(namespace="shop")["items"]
def crashes(pod):
    states = [s["state"] for s in pod["status"]["containerStatuses"]]
    return any(s.get("waiting", {}).get("reason") == "CrashLoopBackOff" for s in states)
[pod["metadata"]["name"] for pod in pods if crashes(pod)]""",
    ('s["state"]', 's["status"]'),
    lambda before, _, answer: answer == [name for name, why in before["pods"].items() if why],
)  # fmt: skip


async def _join(agent: Agent) -> Any:
    owing, customers = await agent.calls([
        ("GetSubscriptions", {"status": "past_due", "limit": 100, "_fields": ["data.customer"]}),
        ("GetCustomers", {"limit": 100, "_fields": ["data.id", "data.email"]}),
    ])  # fmt: skip
    emails = {customer["id"]: customer["email"] for customer in customers["data"]}
    return sorted(emails[row["customer"]] for row in owing["data"])


def _owing(facts: Facts) -> list[str]:
    owing = [row for row in facts["subscriptions"].values() if row["status"] == "past_due"]
    return sorted(facts["customers"][row["customer"]] for row in owing)


JOIN = Shape(
    "join two lists", "List the email addresses of customers whose subscription is past due.",
    "List subscriptions. List all customers.", ("GetSubscriptions", "GetCustomers"), _join,
    """\
owing = tools.GetSubscriptions(status="past_due", limit=100)["data"]
emails = {c["id"]: c["email"] for c in tools.GetCustomers(limit=100)["data"]}
sorted(emails[s["customer"]] for s in owing)""",
    ('c["email"]', 'c["mail"]'),
    lambda before, _, answer: answer == _owing(before),
)  # fmt: skip


async def _page(agent: Agent) -> Any:
    pages = await agent.pages(
        "repos_list-commits", **REPO, per_page=30, _fields=["commit.author.name"]
    )
    return Counter(commit["commit"]["author"]["name"] for page in pages for commit in page)


PAGE = Shape(
    "page through 20", "How many commits has each author made in octo/shop?", "List commits.",
    ("repos_list-commits",), _page,
    """\
from collections import Counter
pages = tools.pages(tools.repos_list_commits, owner="octo", repo="shop", per_page=30, limit=50)
Counter(c["commit"]["author"]["name"] for page in pages for c in page)""",
    ('["commit"]["author"]', '["author"]'),
    lambda before, _, answer: answer == Counter(before["commits"]),
)  # fmt: skip


def reads(count: int) -> Shape:
    """The loop of reads over the first `count` pull requests, which the task names."""
    last = 100 + count

    async def read(agent: Agent) -> Any:
        pull_calls = [
            ("pulls_get", {**REPO, "pull_number": number, "_fields": ["number", "mergeable"]})
            for number in range(101, last + 1)
        ]
        pulls = await agent.calls(pull_calls)
        return [pull["number"] for pull in pulls if not pull["mergeable"]]

    return Shape(
        f"loop of {count} reads",
        f"Which of the pull requests 101 to {last} of octo/shop cannot be merged?",
        "Get a pull request.", ("pulls_get",), read,
        f"""\
numbers = range(101, {last + 1})
pulls = tools.all([tools.pulls_get(owner="octo", repo="shop", pull_number=n) for n in numbers])
[pull["number"] for pull in pulls if not pull["mergeable"]]""",
        ('pull["mergeable"]', 'pull["is_mergeable"]'),
        lambda before, _, answer: answer == [
            number for number in range(101, last + 1) if not before["pulls"][str(number)]
        ],
    )  # fmt: skip


async def _label(agent: Agent) -> Any:
    listed = await agent.call("issues_list-for-repo", **REPO, per_page=100, _fields=["number"])
    label_arguments = [
        {**REPO, "issue_number": issue["number"], "labels": ["stale"], "_fields": ["name"]}
        for issue in listed
    ]
    return len(
        await agent.calls([("issues_add-labels", arguments) for arguments in label_arguments])
    )


def _stale(facts: Facts) -> int:
    return sum("stale" in issue["labels"] for issue in facts["issues"].values())


LABEL = Shape(
    "loop of 50 writes", "Add the label stale to all issues of octo/shop. How many are there?",
    "List repository issues. Add labels to an issue.",
    ("issues_list-for-repo", "issues_add-labels"), _label,
    """\
repo = {"owner": "octo", "repo": "shop"}
issues = tools.issues_list_for_repo(**repo, per_page=100)
numbers = [issue["number"] for issue in issues]
len(tools.all([
    tools.issues_add_labels(**repo, issue_number=n, labels=["stale"]) for n in numbers
]))""",
    ('issue["number"]', 'issue["issue_number"]'),
    lambda before, after, answer: (
        answer == len(before["issues"]) == _stale(after) and not _stale(before)
    ),
    writes=True,
)  # fmt: skip


async def _chain(agent: Agent) -> Any:
    charge = await agent.call(
        "GetChargesCharge", charge="ch_0037", _fields=["customer", "status", "failure_code"]
    )
    if charge["status"] != "failed":
        return "not failed"
    customer = await agent.call(
        "GetCustomersCustomer", customer=charge["customer"], _fields=["id", "delinquent"]
    )
    if customer["delinquent"]:
        return "delinquent"
    owing = await agent.call(
        "GetSubscriptions", customer=customer["id"], _fields=["data.status", "data.latest_invoice"]
    )
    [name] = [row["latest_invoice"] for row in owing["data"] if row["status"] == "past_due"]
    invoice = await agent.call("GetInvoicesInvoice", invoice=name, _fields=["id", "status"])
    if invoice["status"] != "open":
        return invoice["status"]
    paid = await agent.call("PostInvoicesInvoicePay", invoice=name, _fields=["id", "status"])
    return [paid["id"], paid["status"]]


def _chained(before: Facts, after: Facts, answer: Any) -> bool:
    charge = before["charges"]["ch_0037"]
    [name] = [
        row["latest_invoice"]
        for row in before["subscriptions"].values()
        if row["customer"] == charge["customer"] and row["status"] == "past_due"
    ]
    changed = {key for key, row in after["invoices"].items() if row != before["invoices"][key]}
    paid = {"invoices": {**before["invoices"], name: "paid"}}
    return answer == [name, "paid"] and changed == {name} and after == {**before, **paid}


CHAIN = Shape(
    "conditional chain of 5",
    "Charge ch_0037: if it failed and its customer is not delinquent, pay the latest invoice of "
    "their subscription that is past due, if it is still open. Tell its id and status.",
    "Retrieve a charge. Retrieve a customer. List subscriptions. Retrieve an invoice. "
    "Pay an invoice.",
    ("GetChargesCharge", "GetCustomersCustomer", "GetSubscriptions", "GetInvoicesInvoice",
     "PostInvoicesInvoicePay"),
    _chain,
    """\
charge = tools.GetChargesCharge(charge="ch_0037")
if charge["status"] != "failed":
    return "not failed"
customer = tools.GetCustomersCustomer(customer=charge["customer"])
if customer["delinquent"]:
    return "delinquent"
subscriptions = tools.GetSubscriptions(customer=customer["id"])["data"]
[name] = [s["latest_invoice"] for s in subscriptions if s["status"] == "past_due"]
invoice = tools.GetInvoicesInvoice(invoice=name)
if invoice["status"] != "open":
    return invoice["status"]
paid = tools.PostInvoicesInvoicePay(invoice=name)
return [paid["id"], paid["status"]]""",
    ('s["latest_invoice"]', 's["invoice"]'),
    _chained,
    writes=True,
)  # fmt: skip


async def _sum(agent: Agent) -> Any:
    charges = await agent.call(
        "GetCharges", limit=100, _fields=["data.amount", "data.currency", "data.status"]
    )
    return _by_currency(charges["data"])


def _by_currency(charges: Any) -> Any:
    sums: Counter[str] = Counter()
    for charge in charges:
        if charge["status"] == "succeeded":
            sums[charge["currency"]] += charge["amount"]
    return sums


AGGREGATE = Shape(
    "aggregate of 100", "What do the charges that succeeded sum up to, in each currency?",
    "List all charges.", ("GetCharges",), _sum,
    """\
from collections import Counter
sums = Counter()
for charge in tools.GetCharges(limit=100)["data"]:
    if charge["status"] == "succeeded":
        sums[charge["currency"]] += charge["amount"]
sums""",
    ('charge["status"]', 'charge["state"]'),
    lambda before, _, answer: answer == _by_currency(before["charges"].values()),
)  # fmt: skip

SCALE, SCALED = "replaceAppsV1NamespacedDeploymentScale", "readAppsV1NamespacedDeploymentScale"


def _scaling(name: str, version: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": version}
    return {
        **SHOP, "name": name, "metadata": metadata, "spec": {"replicas": 3},
        "_fields": ["metadata.name", "spec.replicas"],
    }  # fmt: skip


async def _scale(agent: Agent) -> Any:
    listed = await agent.call(
        "listAppsV1NamespacedDeployment", **SHOP,
        _fields=["items.metadata.name", "items.metadata.resourceVersion"],
    )  # fmt: skip
    about = [deployment["metadata"] for deployment in listed["items"]]
    scale_arguments = [_scaling(row["name"], row["resourceVersion"]) for row in about]
    answers = await agent.calls([(SCALE, arguments) for arguments in scale_arguments])
    again = [row["name"] for row, answer in zip(about, answers, strict=True) if answer is None]
    for name in again:
        scale = await agent.call(SCALED, **SHOP, name=name, _fields=["metadata.resourceVersion"])
        await agent.call(SCALE, **_scaling(name, scale["metadata"]["resourceVersion"]))
    return again


ERROR = Shape(
    "error in the middle",
    "Scale all deployments of the namespace shop to 3 replicas; where another change comes in "
    "between, read the scale and try again. Tell which ones that were.",
    "List the deployments of a namespace. Replace scale of a deployment. "
    "Read scale of a deployment.",
    ("listAppsV1NamespacedDeployment", SCALE, SCALED), _scale,
    """\
def scale(name, version):
    tools.replaceAppsV1NamespacedDeploymentScale(
        namespace="shop", name=name, spec={"replicas": 3},
        metadata={"name": name, "namespace": "shop", "resourceVersion": version})
again = []
for one in tools.listAppsV1NamespacedDeployment(namespace="shop")["items"]:
    name = one["metadata"]["name"]
    try:
        scale(name, one["metadata"]["resourceVersion"])
    except ToolError as error:
        if "modified" not in error.message:
            raise
        again.append(name)
        now = tools.readAppsV1NamespacedDeploymentScale(namespace="shop", name=name)
        scale(name, now["metadata"]["resourceVersion"])
again""",
    ('one["metadata"]["name"]', 'one["name"]'),
    lambda _, after, answer: (
        answer == ["checkout-6"] and after["conflicts"] == 1
        and {row["replicas"] for row in after["deployments"].values()} == {3}
    ),
    writes=True,
)  # fmt: skip

SHAPES = (READ, WRITE, FILTER, JOIN, PAGE, reads(50), LABEL, CHAIN, AGGREGATE, ERROR)
