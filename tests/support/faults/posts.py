"""The oracle's view of approvals: every POST has a cause, and every cause one end."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from bridge.simulator.approvals import Post

FINAL = ("failed", "confirmed", "rejected")


def wrong_receipts(receipts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each cause is accepted or rejected first, and has one end at most, which is the last."""
    stories: dict[str, list[str]] = defaultdict(list)
    for receipt in receipts:
        stories[receipt["data"]["jti"]].append(receipt["data"]["state"])
    for jti, story in stories.items():
        taken = [state for state in story if state != "rejected"]  # a replay is rejected each time
        ends = [state for state in taken if state in FINAL]
        if taken and (taken[0] != "accepted" or taken.count("accepted") > 1):
            yield f"the receipts of {jti} are {story}"
        elif ends and (len(ends) > 1 or taken[-1] != ends[0]):
            yield f"{jti} has more than one end: {story}"


def wrong_posts(
    posts: Sequence[Post],
    receipts: Sequence[Mapping[str, Any]],
    *,
    rules: Collection[str],
    commands: Collection[str],
    people: Collection[str],
) -> Iterator[str]:
    """Each POST is for an event whose approval was accepted, for a cause that may be one."""
    actors = {f"rule:{name}" for name in rules} | {f"local:{user}" for user in people}
    accepted: set[str] = set()
    for receipt in receipts:
        data = receipt["data"]
        if data["state"] == "accepted":
            if data["actor"] in actors or data["jti"] in commands:
                accepted.add(str(data["evt"]).casefold())
            else:
                yield f"accepted from {data['actor']!r} with {data['jti']}: nobody's cause"
    for post in posts:
        for event_id in asked(post):
            if event_id.casefold() not in accepted:
                yield f"a POST for {event_id} without a cause"
    effects = [event_id.casefold() for post in posts for event_id in post.started]
    for event_id in sorted({each for each in effects if effects.count(each) > 1}):
        yield f"{effects.count(event_id)} effective approvals of {event_id}"


def asked(post: Post) -> list[str]:
    """The EventIds that a POST names."""
    return [str(each["EventId"]) for each in json.loads(post.body)["StartRequests"]]
