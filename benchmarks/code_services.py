"""Services that keep state for the benchmark of code mode: a small GitHub, Stripe and Kubernetes.

Their operations have the names, arguments and verbose answers of the real ones, of which they are
a small part. `POST /reset` gives the first state back, and `GET /facts` tells all of it in short.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Json = dict[str, Any]
Facts = dict[str, Any]

WHEN = "2026-11-02T09:14:27Z"
REPOSITORY = "/repos/{owner}/{repo}"
NAMESPACE = "/namespaces/{namespace}"
BUSY = "checkout-6"  # its first change meets another one


def first_facts() -> Facts:
    """The state of all services, in short."""
    customers = [f"cus_{number:04}" for number in range(60)]
    return {
        "issues": {
            number: {
                "title": f"Basket loses items after step {number}", "state": "open", "labels": [],
            }
            for number in range(1, 51)
        },
        "pulls": {number: number % 9 != 4 for number in range(101, 151)},  # mergeable
        "commits": [f"author-{number * number % 7}" for number in range(600)],
        "customers": {name: f"{name[4:]}@example.com" for name in customers},
        "subscriptions": {
            f"sub_{number:04}": {
                "customer": customers[number * 7 % 60],
                "status": "past_due" if number % 4 == 1 else "active",
                "latest_invoice": f"in_{number:04}",
            }
            for number in range(48)
        },
        "invoices": {f"in_{number:04}": "open" if number % 4 == 1 else "paid"
                     for number in range(48)},
        "charges": {
            f"ch_{number:04}": {
                "customer": customers[number * 11 % 60],
                "amount": 500 + 37 * number,
                "currency": ("eur", "usd", "gbp")[number % 3],
                "status": "failed" if number % 5 == 2 else "succeeded",
            }
            for number in range(100)
        },
        "pods": {f"shop-{number:03}": "CrashLoopBackOff" if number == 137 else None
                 for number in range(200)},
        "deployments": {f"checkout-{number}": {"replicas": 1, "version": 7000 + number}
                        for number in range(10)},
        "conflicts": 0,
    }  # fmt: skip


class ServiceRequest(Struct):
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json
    url: str  # without the query

    @property
    def size(self) -> int:
        return int(self.query.get("per_page") or self.query.get("limit") or 30)


class Failure(Exception):
    def __init__(self, status: int, body: Json) -> None:
        super().__init__(status)
        self.status, self.body = status, body


class Page(Struct):
    """Entries whose following page is announced in a header `Link`."""

    entries: list[Json]
    following: str | None


Answer = Callable[[Facts, ServiceRequest], Any]


class Endpoint(Struct, frozen=True):
    """An operation. `queries`: names and schemas. `body`: members of a body, with their schemas;
    all are required."""

    method: str
    path: str
    name: str
    summary: str
    answer: Answer
    queries: Mapping[str, Json] = {}
    body: Mapping[str, Json] = {}
    example: Mapping[str, str] = {}  # values of the path, for the schema of the answer


TEXT: Json = {"type": "string"}


def _limit(most: int) -> Json:
    text = f"A limit on the number of objects to be returned, between 1 and {most}."
    return {
        "type": "integer", "minimum": 1, "maximum": most, "default": min(most, 30),
        "description": text,
    }  # fmt: skip


# GitHub


def _user(login: str) -> Json:
    url = f"https://api.github.com/users/{login}"
    links = {
        f"{name}_url": f"{url}/{name}"
        for name in (
            "followers", "following", "gists", "starred", "subscriptions", "organizations",
            "repos", "events", "received_events",
        )
    }  # fmt: skip
    return {
        "login": login, "id": 4_218_733, "node_id": "MDQ6VXNlcjQyMTg3MzM=",
        "avatar_url": f"https://avatars.githubusercontent.com/u/4218733?v=4&u={login}",
        "gravatar_id": "", "url": url, "html_url": f"https://github.com/{login}", **links,
        "type": "User", "site_admin": False,
    }  # fmt: skip


def _label(name: str) -> Json:
    url = f"https://api.github.com/repos/octo/shop/labels/{name}"
    return {
        "id": 208_045_946, "node_id": "MDU6TGFiZWwyMDgwNDU5NDY=", "url": url, "name": name,
        "description": "", "color": "f29513", "default": False,
    }  # fmt: skip


def _issue(facts: Facts, number: int) -> Json:
    issue = facts["issues"].get(number)
    if issue is None:
        raise _github_missing()
    url = f"https://api.github.com/repos/octo/shop/issues/{number}"
    return {
        "id": 1_296_269_000 + number, "node_id": "MDU6SXNzdWUxMjk2MjY5", "url": url,
        "repository_url": "https://api.github.com/repos/octo/shop",
        "labels_url": f"{url}/labels{{/name}}", "comments_url": f"{url}/comments",
        "events_url": f"{url}/events", "html_url": f"https://github.com/octo/shop/issues/{number}",
        "number": number, "state": issue["state"], "title": issue["title"],
        "body": "Put three items into the basket, go back to the list, and one of them is gone. "
        "It happens in all browsers, and only when logged in. " * 2,
        "user": _user("hubot"), "labels": [_label(name) for name in issue["labels"]],
        "assignee": _user("octocat"), "assignees": [_user("octocat")], "milestone": None,
        "locked": False, "active_lock_reason": None, "comments": 3, "closed_at": None,
        "created_at": WHEN, "updated_at": WHEN, "author_association": "COLLABORATOR",
    }  # fmt: skip


def _pull(facts: Facts, number: int, *, listed: bool) -> Json:
    """Only the answer for a single pull request tells whether it is mergeable."""
    if number not in facts["pulls"]:
        raise _github_missing()
    url = f"https://api.github.com/repos/octo/shop/pulls/{number}"
    branch = {"label": f"octo:fix-{number}", "ref": f"fix-{number}", "sha": f"{number:040x}",
              "user": _user("octo")}  # fmt: skip
    mergeable = facts["pulls"][number]
    more = {
        "merged": False, "mergeable": mergeable, "rebaseable": mergeable,
        "mergeable_state": "clean" if mergeable else "dirty", "comments": 4, "review_comments": 2,
        "commits": 3, "additions": 104, "deletions": 4, "changed_files": 5,
    }  # fmt: skip
    return {
        "url": url, "id": 190_000 + number, "node_id": "MDExOlB1bGxSZXF1ZXN0MQ==",
        "html_url": f"https://github.com/octo/shop/pull/{number}", "diff_url": f"{url}.diff",
        "patch_url": f"{url}.patch", "commits_url": f"{url}/commits", "number": number,
        "state": "open", "locked": False, "title": f"Fix step {number} of the basket",
        "user": _user("octocat"), "body": "Please pull these changes.", "draft": False,
        "labels": [_label("bug")], "created_at": WHEN, "updated_at": WHEN, "merged_at": None,
        "requested_reviewers": [_user("hubot")], "head": branch, "base": branch,
        **({} if listed else more),
    }  # fmt: skip


def _commit(facts: Facts, place: int) -> Json:
    author, sha = facts["commits"][place], f"{place * 7919:040x}"
    url = f"https://api.github.com/repos/octo/shop/commits/{sha}"
    signature = {"name": author, "email": f"{author}@example.com", "date": WHEN}
    return {
        "sha": sha, "node_id": "MDY6Q29tbWl0NmRjYjA5", "url": url, "html_url": url,
        "comments_url": f"{url}/comments",
        "commit": {
            "author": signature, "committer": signature, "url": url, "comment_count": 0,
            "message": f"Fix step {place} of the basket\n\nIt was not stored.",
            "tree": {"sha": sha, "url": url},
            "verification": {"verified": False, "reason": "unsigned", "signature": None},
        },
        "author": _user(author), "committer": _user(author),
        "parents": [{"sha": sha, "url": url, "html_url": url}],
    }  # fmt: skip


def _github_missing() -> Failure:
    about = "https://docs.github.com/rest"
    return Failure(404, {"message": "Not Found", "documentation_url": about, "status": "404"})


def _linked(request: ServiceRequest, entries: Sequence[Any], view: Callable[[Any], Json]) -> Page:
    page = int(request.query.get("page", 1))
    page_entries = [
        view(entry) for entry in entries[(page - 1) * request.size : page * request.size]
    ]
    query = "&".join(f"{key}={value}" for key, value in {**request.query, "page": page + 1}.items())
    return Page(
        page_entries, f"{request.url}?{query}" if page * request.size < len(entries) else None
    )


def list_issues(facts: Facts, request: ServiceRequest) -> Any:
    return _linked(request, list(facts["issues"]), lambda number: _issue(facts, number))


def get_issue(facts: Facts, request: ServiceRequest) -> Any:
    return _issue(facts, int(request.path["issue_number"]))


def create_issue(facts: Facts, request: ServiceRequest) -> Any:
    number = max(facts["issues"]) + 1
    facts["issues"][number] = {"title": request.body["title"], "state": "open", "labels": []}
    return _issue(facts, number)


def add_labels(facts: Facts, request: ServiceRequest) -> Any:
    issue = facts["issues"].get(int(request.path["issue_number"]))
    if issue is None:
        raise _github_missing()
    issue["labels"] = [*dict.fromkeys([*issue["labels"], *request.body["labels"]])]
    return [_label(name) for name in issue["labels"]]


def list_pulls(facts: Facts, request: ServiceRequest) -> Any:
    return _linked(request, list(facts["pulls"]), lambda number: _pull(facts, number, listed=True))


def get_pull(facts: Facts, request: ServiceRequest) -> Any:
    return _pull(facts, int(request.path["pull_number"]), listed=False)


def list_commits(facts: Facts, request: ServiceRequest) -> Any:
    return _linked(request, range(len(facts["commits"])), lambda place: _commit(facts, place))


# Stripe


def _listed(request: ServiceRequest, entries: Sequence[Json]) -> Json:
    after, size = request.query.get("starting_after"), request.size
    begin = 0 if after is None else [entry["id"] for entry in entries].index(after) + 1
    page_entries = list(entries[begin : begin + size])
    more = begin + size < len(entries)
    return {
        "object": "list",
        "data": page_entries,
        "has_more": more,
        "url": request.path.get("", "/v1"),
    }


def _of(facts: Facts, kind: str, request: ServiceRequest) -> str:
    name = next(iter(request.path.values()))
    if name not in facts[kind]:
        text = f"No such {kind[:-1]}: '{name}'"
        raise Failure(404, {"error": {
            "code": "resource_missing", "message": text, "param": "id",
            "doc_url": "https://stripe.com/docs/error-codes/resource-missing",
            "type": "invalid_request_error",
        }})  # fmt: skip
    return name


_ADDRESS = {"city": "Graz", "country": "AT", "line1": "Hauptplatz 1", "line2": None,
            "postal_code": "8010", "state": None}  # fmt: skip


def _customer(facts: Facts, name: str) -> Json:
    return {
        "id": name, "object": "customer", "address": _ADDRESS, "balance": 0,
        "created": 1_793_612_067, "currency": "eur", "default_source": None, "delinquent": False,
        "description": "Buys lamps", "discount": None, "email": facts["customers"][name],
        "invoice_prefix": name[-4:], "invoice_settings": {
            "custom_fields": None, "default_payment_method": "pm_1", "footer": None,
            "rendering_options": None,
        },
        "livemode": False, "metadata": {}, "name": f"Customer {name[4:]}",
        "next_invoice_sequence": 4, "phone": None, "preferred_locales": ["de"],
        "shipping": {"address": _ADDRESS, "name": "Reception", "phone": None},
        "tax_exempt": "none", "test_clock": None,
    }  # fmt: skip


def _subscription(facts: Facts, name: str) -> Json:
    price = {
        "id": "price_1", "object": "price", "active": True, "billing_scheme": "per_unit",
        "created": 1_793_612_067, "currency": "eur", "livemode": False, "lookup_key": None,
        "metadata": {}, "nickname": None, "product": "prod_1",
        "recurring": {"interval": "month", "interval_count": 1, "usage_type": "licensed"},
        "tax_behavior": "unspecified", "type": "recurring", "unit_amount": 1900,
    }  # fmt: skip
    return {
        "id": name, "object": "subscription", "application": None,
        "automatic_tax": {"enabled": False, "liability": None}, "billing_cycle_anchor": 1,
        "cancel_at": None, "cancel_at_period_end": False, "canceled_at": None,
        "collection_method": "charge_automatically", "created": 1_793_612_067, "currency": "eur",
        "current_period_end": 1_796_290_467, "current_period_start": 1_793_612_067,
        "default_payment_method": "pm_1", "discounts": [], "ended_at": None,
        "items": {"object": "list", "data": [
            {"id": f"si_{name[4:]}", "object": "subscription_item", "price": price, "quantity": 1}
        ], "has_more": False},
        "livemode": False, "metadata": {}, "next_pending_invoice_item_invoice": None,
        "start_date": 1_793_612_067, "trial_end": None, **facts["subscriptions"][name],
    }  # fmt: skip


def _invoice(facts: Facts, name: str) -> Json:
    paid = facts["invoices"][name] == "paid"
    return {
        "id": name, "object": "invoice", "account_country": "AT", "account_name": "Lamps",
        "amount_due": 1900, "amount_paid": 1900 if paid else 0,
        "amount_remaining": 0 if paid else 1900, "attempt_count": 1, "attempted": True,
        "auto_advance": True, "billing_reason": "subscription_cycle",
        "collection_method": "charge_automatically", "created": 1_793_612_067, "currency": "eur",
        "customer_address": _ADDRESS, "customer_name": "A customer", "default_tax_rates": [],
        "hosted_invoice_url": f"https://invoice.stripe.com/i/acct_1/{name}", "number": name[3:],
        "invoice_pdf": f"https://pay.stripe.com/invoice/acct_1/{name}/pdf", "paid": paid,
        "lines": {"object": "list", "data": [
            {"id": f"il_{name[3:]}", "object": "line_item", "amount": 1900, "currency": "eur",
             "description": "1 x lamp of the month", "period": {"start": 1, "end": 2}}
        ], "has_more": False},
        "status": facts["invoices"][name], "subtotal": 1900, "total": 1900,
    }  # fmt: skip


def _charge(facts: Facts, name: str) -> Json:
    charge = facts["charges"][name]
    failed = charge["status"] == "failed"
    return {
        "id": name, "object": "charge", "amount_captured": 0 if failed else charge["amount"],
        "amount_refunded": 0, "application_fee": None, "balance_transaction": f"txn_{name[3:]}",
        "billing_details": {"address": _ADDRESS, "email": None, "name": None, "phone": None},
        "calculated_statement_descriptor": "LAMPS", "captured": not failed,
        "created": 1_793_612_067, "description": "Lamps", "disputed": False,
        "failure_code": "card_declined" if failed else None,
        "failure_message": "Your card was declined." if failed else None, "fraud_details": {},
        "livemode": False, "metadata": {"basket": "b-17"}, "on_behalf_of": None,
        "outcome": {"network_status": "approved_by_network", "risk_level": "normal",
                    "risk_score": 32, "seller_message": "Payment complete.", "type": "authorized"},
        "paid": not failed, "payment_intent": None, "payment_method": "pm_1",
        "payment_method_details": {"card": {
            "brand": "visa", "checks": {"cvc_check": "pass"}, "country": "AT", "exp_month": 8,
            "exp_year": 2029, "fingerprint": "Xt5EWLLDS7FJjR1c", "funding": "credit",
            "last4": "4242", "network": "visa",
        }, "type": "card"},
        "receipt_url": f"https://pay.stripe.com/receipts/payment/{name}", "refunded": False,
        **charge,
    }  # fmt: skip


def list_customers(facts: Facts, request: ServiceRequest) -> Any:
    return _listed(request, [_customer(facts, name) for name in facts["customers"]])


def get_customer(facts: Facts, request: ServiceRequest) -> Any:
    return _customer(facts, _of(facts, "customers", request))


def list_subscriptions(facts: Facts, request: ServiceRequest) -> Any:
    filters = {key: request.query[key] for key in ("status", "customer") if key in request.query}
    subscriptions = [_subscription(facts, name) for name in facts["subscriptions"]]
    return _listed(request, [entry for entry in subscriptions if filters.items() <= entry.items()])


def get_invoice(facts: Facts, request: ServiceRequest) -> Any:
    return _invoice(facts, _of(facts, "invoices", request))


def pay_invoice(facts: Facts, request: ServiceRequest) -> Any:
    name = _of(facts, "invoices", request)
    facts["invoices"][name] = "paid"
    return _invoice(facts, name)


def list_charges(facts: Facts, request: ServiceRequest) -> Any:
    return _listed(request, [_charge(facts, name) for name in facts["charges"]])


def get_charge(facts: Facts, request: ServiceRequest) -> Any:
    return _charge(facts, _of(facts, "charges", request))


# Kubernetes


def _metadata(name: str, version: int) -> Json:
    manager = {
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
        "time": WHEN, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:status": {}},
    }  # fmt: skip
    return {
        "name": name, "namespace": "shop", "uid": f"5b1d2f60-0000-4000-8000-{version:012}",
        "resourceVersion": str(version), "generation": 2, "creationTimestamp": WHEN,
        "labels": {"app": "shop", "pod-template-hash": "5d4f8c7b9"}, "managedFields": [manager],
    }  # fmt: skip


def _pod(facts: Facts, name: str) -> Json:
    reason = facts["pods"][name]
    state: Json = {"waiting": {"reason": reason, "message": "back-off 5m0s restarting failed"}}
    container = {
        "name": "web", "image": "registry.example.com/shop:4.2.0", "imagePullPolicy": "Always",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "250m"}},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var/run/secrets"}],
    }  # fmt: skip
    status = {
        "name": "web", "ready": reason is None, "restartCount": 41 if reason else 0,
        "image": container["image"], "imageID": "sha256:93a1", "started": reason is None,
        "state": state if reason else {"running": {"startedAt": WHEN}},
    }  # fmt: skip
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": WHEN}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": _metadata(name, 5000 + int(name[5:])),
        "spec": {"containers": [container], "nodeName": f"node-{int(name[5:]) % 12}",
                 "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "tolerations": [],
                 "serviceAccountName": "default", "schedulerName": "default-scheduler"},
        "status": {"phase": "Running", "conditions": conditions, "hostIP": "10.0.0.4",
                   "podIP": "10.1.0.17", "startTime": WHEN, "containerStatuses": [status]},
    }  # fmt: skip


def list_pods(facts: Facts, request: ServiceRequest) -> Any:
    begin = int(request.query.get("continue") or 0)
    size = int(request.query.get("limit") or 500)
    names = list(facts["pods"])
    following = str(begin + size) if begin + size < len(names) else ""
    return {
        "kind": "PodList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "9001", "continue": following},
        "items": [_pod(facts, name) for name in names[begin : begin + size]],
    }  # fmt: skip


def _deployment(facts: Facts, name: str) -> Json:
    deployment = facts["deployments"][name]
    template = {"metadata": {"labels": {"app": name}}, "spec": _pod(facts, "shop-000")["spec"]}
    return {
        "metadata": _metadata(name, deployment["version"]),
        "spec": {"replicas": deployment["replicas"], "selector": {"matchLabels": {"app": name}},
                 "template": template, "strategy": {"type": "RollingUpdate"},
                 "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
        "status": {"observedGeneration": 2, "replicas": deployment["replicas"], "conditions": []},
    }  # fmt: skip


def list_deployments(facts: Facts, _request: ServiceRequest) -> Any:
    return {
        "kind": "DeploymentList", "apiVersion": "apps/v1",
        "metadata": {"resourceVersion": "9001"},
        "items": [_deployment(facts, name) for name in facts["deployments"]],
    }  # fmt: skip


def _scale(facts: Facts, request: ServiceRequest) -> Json:
    name = request.path["name"]
    if name not in facts["deployments"]:
        raise _status(404, "NotFound", f'deployments.apps "{name}" not found')
    deployment = facts["deployments"][name]
    return {
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": _metadata(name, deployment["version"]),
        "spec": {"replicas": deployment["replicas"]},
        "status": {"replicas": deployment["replicas"], "selector": f"app={name}"},
    }  # fmt: skip


def _status(status: int, reason: str, message: str) -> Failure:
    facts = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Failure(status, {**facts, "message": message, "reason": reason, "code": status})


def read_scale(facts: Facts, request: ServiceRequest) -> Any:
    return _scale(facts, request)


def replace_scale(facts: Facts, request: ServiceRequest) -> Any:
    name = request.path["name"]
    deployment = _scale(facts, request) and facts["deployments"][name]
    if name == BUSY and not facts["conflicts"]:
        facts["conflicts"] += 1
        deployment["version"] += 100
    if request.body["metadata"].get("resourceVersion") != str(deployment["version"]):
        text = (
            f'Operation cannot be fulfilled on deployments.apps "{name}": the object has been '
            "modified; please apply your changes to the latest version and try again"
        )
        raise _status(409, "Conflict", text)
    deployment["replicas"] = request.body["spec"]["replicas"]
    deployment["version"] += 1
    return _scale(facts, request)


_PAGES = {"per_page": _limit(100), "page": {"type": "integer", "default": 1}}
_CURSOR = {"limit": _limit(100), "starting_after": TEXT}
_OBJECT = {
    "type": "object",
    "properties": {"name": TEXT, "namespace": TEXT, "resourceVersion": TEXT},
}
_SPEC = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
_SCALE = f"{NAMESPACE}/deployments/{{name}}/scale"
_ISSUE = {"issue_number": "1"}
ENDPOINTS: Mapping[str, tuple[Endpoint, ...]] = {
    "github": (
        Endpoint("GET", f"{REPOSITORY}/issues", "issues_list-for-repo",
                 "List repository issues", list_issues, _PAGES),
        Endpoint("POST", f"{REPOSITORY}/issues", "issues_create", "Create an issue", create_issue,
                 body={"title": TEXT, "body": TEXT}),
        Endpoint("GET", f"{REPOSITORY}/issues/{{issue_number}}", "issues_get", "Get an issue",
                 get_issue, example=_ISSUE),
        Endpoint("POST", f"{REPOSITORY}/issues/{{issue_number}}/labels", "issues_add-labels",
                 "Add labels to an issue", add_labels,
                 body={"labels": {"type": "array", "items": TEXT}}, example=_ISSUE),
        Endpoint("GET", f"{REPOSITORY}/pulls", "pulls_list", "List pull requests", list_pulls,
                 _PAGES),
        Endpoint("GET", f"{REPOSITORY}/pulls/{{pull_number}}", "pulls_get", "Get a pull request",
                 get_pull, example={"pull_number": "101"}),
        Endpoint("GET", f"{REPOSITORY}/commits", "repos_list-commits", "List commits",
                 list_commits, {**_PAGES, "per_page": _limit(30)}),
    ),
    "stripe": (
        Endpoint("GET", "/v1/customers", "GetCustomers", "List all customers", list_customers,
                 _CURSOR),
        Endpoint("GET", "/v1/customers/{customer}", "GetCustomersCustomer",
                 "Retrieve a customer", get_customer, example={"customer": "cus_0000"}),
        Endpoint("GET", "/v1/subscriptions", "GetSubscriptions", "List subscriptions",
                 list_subscriptions, {
                     **_CURSOR, "customer": TEXT,
                     "status": {"type": "string", "enum": ["active", "past_due", "canceled"]},
                 }),
        Endpoint("GET", "/v1/invoices/{invoice}", "GetInvoicesInvoice", "Retrieve an invoice",
                 get_invoice, example={"invoice": "in_0000"}),
        Endpoint("POST", "/v1/invoices/{invoice}/pay", "PostInvoicesInvoicePay", "Pay an invoice",
                 pay_invoice, example={"invoice": "in_0000"}),
        Endpoint("GET", "/v1/charges", "GetCharges", "List all charges", list_charges, _CURSOR),
        Endpoint("GET", "/v1/charges/{charge}", "GetChargesCharge", "Retrieve a charge",
                 get_charge, example={"charge": "ch_0000"}),
    ),
    "kubernetes": (
        Endpoint("GET", f"{NAMESPACE}/pods", "listCoreV1NamespacedPod",
                 "List or watch objects of kind Pod", list_pods,
                 {"limit": {"type": "integer"}, "continue": TEXT}),
        Endpoint("GET", f"{NAMESPACE}/deployments", "listAppsV1NamespacedDeployment",
                 "List or watch objects of kind Deployment", list_deployments,
                 {"limit": {"type": "integer"}}),
        Endpoint("GET", _SCALE, "readAppsV1NamespacedDeploymentScale",
                 "Read scale of the specified Deployment", read_scale,
                 example={"name": "checkout-0"}),
        Endpoint("PUT", _SCALE, "replaceAppsV1NamespacedDeploymentScale",
                 "Replace scale of the specified Deployment", replace_scale,
                 body={"metadata": _OBJECT, "spec": _SPEC}, example={"name": "checkout-0"}),
    ),
}  # fmt: skip


def describe(service: str, url: str) -> Json:
    """An OpenAPI description of a service below `url`."""
    paths: dict[str, Json] = {}
    for endpoint in ENDPOINTS[service]:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    info = {"title": service, "version": "1"}
    return {
        "openapi": "3.1.0", "info": info, "servers": [{"url": f"{url}/{service}"}], "paths": paths
    }  # fmt: skip


def _operation(endpoint: Endpoint) -> Json:
    names = re.findall(r"\{(\w+)\}", endpoint.path)
    parameters = [
        {"name": name, "in": "path", "required": True,
         "schema": {"type": "integer" if name.endswith("_number") else "string"}}
        for name in names
    ]  # fmt: skip
    parameters += [{"name": name, "in": "query", "schema": endpoint.queries[name]}
                   for name in endpoint.queries]  # fmt: skip
    schema = _schema_of(_example(endpoint))
    answer: Json = {"description": "ok", "content": {"application/json": {"schema": schema}}}
    if isinstance(_answer(endpoint), Page):
        answer["headers"] = {"Link": {"schema": TEXT}}
    body: Json = {"type": "object", "properties": endpoint.body, "required": list(endpoint.body)}
    content = {"application/json": {"schema": body}}
    return {
        "operationId": endpoint.name, "summary": endpoint.summary, "parameters": parameters,
        "responses": {"200": answer},
        **({"requestBody": {"required": True, "content": content}} if endpoint.body else {}),
    }  # fmt: skip


def _answer(endpoint: Endpoint) -> Any:
    facts = first_facts()
    facts["conflicts"] = 1
    body = {"title": "", "labels": ["bug"], "metadata": {"resourceVersion": "7000"},
            "spec": {"replicas": 1}}  # fmt: skip
    return endpoint.answer(facts, ServiceRequest(endpoint.example, {"limit": "2"}, body, ""))


def _example(endpoint: Endpoint) -> Any:
    answer = _answer(endpoint)
    return answer.entries if isinstance(answer, Page) else answer


def _schema_of(value: Any) -> Json:
    """The schema of an example; null is a string that may be null."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array", "items": _schema_of(value[0]) if value else {}}
        case dict():
            members = {name: _schema_of(member) for name, member in value.items()}
            return {"type": "object", "properties": members}
    return {"type": ["string", "null"]}


class Services:
    """All three, at one address."""

    def __init__(self) -> None:
        self.facts = first_facts()
        self.arrived = 0.0
        routes = [
            Route(f"/{service}{endpoint.path}", self._serve(endpoint), methods=[endpoint.method])
            for service, endpoints in ENDPOINTS.items()
            for endpoint in endpoints
        ]
        control = [
            Route("/facts", self._tell),
            Route("/arrived", self._tell_arrived),
            Route("/reset", self._reset, methods=["POST"]),
        ]
        self.app = Starlette(routes=[*routes, *control])

    def _serve(self, endpoint: Endpoint) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            self.arrived = time.monotonic()
            body = await request.json() if await request.body() else {}
            url = str(request.url.replace(query=""))
            service_request = ServiceRequest(request.path_params, request.query_params, body, url)
            try:
                answer = endpoint.answer(self.facts, service_request)
            except Failure as failure:
                return JSONResponse(failure.body, failure.status)
            if not isinstance(answer, Page):
                return JSONResponse(answer)
            link = {"link": f'<{answer.following}>; rel="next"'} if answer.following else {}
            return JSONResponse(answer.entries, headers=link)

        return serve

    async def _tell(self, _request: Request) -> Response:
        return JSONResponse(self.facts)

    async def _tell_arrived(self, _request: Request) -> Response:
        return JSONResponse(self.arrived)

    async def _reset(self, _request: Request) -> Response:
        self.facts = first_facts()
        return Response(status_code=204)


app = Services().app
