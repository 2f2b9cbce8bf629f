"""What is compared before a person approves an event that has changed."""

from console.fleet.differences import SEEN
from wire.event import FINGERPRINTED


def test_an_approver_sees_every_field_that_the_fingerprint_covers() -> None:
    """An approver sees every field that the fingerprint covers, except the id and the kind of the
    resources, which never change.
    """
    assert {*SEEN, "eventId", "resourceType"} == set(FINGERPRINTED)
