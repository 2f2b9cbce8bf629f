from dataclasses import dataclass, field

from bridge.connections import ASK_SECONDS, MOST, READ_SECONDS, let_go


@dataclass
class Line:
    """A connection as the server keeps it."""

    creation_time: float
    last_activity: float = 0.0
    total_outbufs_len: int = 0
    requests: list[str] = field(default_factory=list)
    closed: bool = False

    def handle_close(self) -> None:
        self.closed = True


def test_a_request_that_does_not_come_is_not_waited_for() -> None:
    """Whatever comes of it meanwhile, drop by drop."""
    slow, new = Line(100.0, last_activity=110.0), Line(105.0)
    let_go([slow, new], 100.1 + ASK_SECONDS)
    assert (slow.closed, new.closed) == (True, False)


def test_an_answer_that_is_not_read_is_not_kept() -> None:
    """One that is being read may take its time, and so may one that is being made."""
    now = 1000.0
    unread = Line(0.0, last_activity=now - READ_SECONDS - 0.1, total_outbufs_len=9)
    read = Line(0.0, last_activity=now - 1.0, total_outbufs_len=9, requests=["r"])
    made = Line(0.0, requests=["r"])
    let_go([unread, read, made], now)
    assert (unread.closed, read.closed, made.closed) == (True, False, False)


def test_where_there_are_many_the_oldest_silent_ones_go() -> None:
    """So that there is a place for the next one; those that are served stay."""
    served = [Line(0.0, requests=["r"]) for _ in range(10)]
    silent = [Line(float(number) / 100) for number in range(MOST - 10)]
    let_go([*served, *silent], 1.0)
    assert not any(each.closed for each in served)
    gone = [each.closed for each in silent]
    assert gone == sorted(gone, reverse=True)
    assert 0 < sum(gone) < len(silent)
