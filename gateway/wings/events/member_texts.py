"""Words for people about the members of requests of the events."""

from gateway.operations.member_texts import MemberText, MemberTexts

INVOCATION: MemberTexts = {
    "skillName": MemberText(
        "Tool or skill", "It is called later, with your rights.", "createPet", choices="tools"
    ),
    "arguments": MemberText("Arguments", "The arguments of the call.", '{"name": "Rex"}'),
    "delayS": MemberText("Delay in seconds", "The call waits for so long.", "60"),
    "notBefore": MemberText("Not before", "The call waits until then.", "2030-01-31T12:00:00Z"),
    "deadlineS": MemberText(
        "Deadline in seconds", "After so long it is not called any more.", "3600"
    ),
    "priority": MemberText("Priority", "From 0 to 9; the highest goes first.", "5", rarely=True),
    "attempts": MemberText("Attempts", "The most attempts before it fails.", "3", rarely=True),
    "retry": MemberText(
        "Try again", "After errors; auto: only where a second call does no harm.", rarely=True
    ),
    "orderKey": MemberText(
        "Order", "Calls with the same text run one after another.", "customer-17", rarely=True
    ),
    "onFailure": MemberText(
        "After a failure", "Whether the next call of the same order waits.", rarely=True
    ),
    "replyTo": MemberText(
        "Send the result to", "A webhook or a topic that gets the result.", "orders", rarely=True
    ),
    "topic": MemberText("Topic", "The topic that workers take it from.", "orders", rarely=True),
    "correlationId": MemberText(
        "Correlation id", "Finds the call in your own logs.", "order-4711", rarely=True
    ),
    "causedBy": MemberText(
        "Caused by", "The id of the invocation before it.", "0190c2a4", rarely=True
    ),
    "idempotencyKey": MemberText(
        "Idempotency key", "A second call with the same key is not made.", "order-4711", rarely=True
    ),
}

WEBHOOK: MemberTexts = {
    "webhook": MemberText("Webhook", "A name of `replyTo: webhook:NAME`.", "crm"),
}

REDELIVERY: MemberTexts = {
    **WEBHOOK,
    "ids": MemberText(
        "Deliveries",
        "The ids of deliveries; empty: all that failed or wait.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "limit": MemberText("Limit", "The most that are sent, the oldest first.", "1000", rarely=True),
}

REDRIVE: MemberTexts = {
    "ids": MemberText(
        "Invocations",
        "The ids of failed invocations; empty: all that match below.",
        "0190c2a4-6f1e-7c3a-9d52-3f6f2a7b1c55",
    ),
    "skillName": MemberText(
        "Tool or skill", "Only invocations of this one.", "createPet", choices="tools"
    ),
    "reason": MemberText("Reason", "Only those that failed so."),
    "limit": MemberText("Limit", "The most that run again.", "1000", rarely=True),
}

ERASURE: MemberTexts = {
    "principal": MemberText(
        "Caller",
        "Arguments, results and errors of its invocations are erased.",
        "corp#ann",
        choices="principals",
    )
}
