"""The tidemark: how far a store had come."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.tidemark import FILE_NAME, Tidemark


def test_the_newest_note_stands(tmp_path: Path) -> None:
    """Each replaces the one before it; another stream's says nothing."""
    mark = Tidemark(tmp_path)
    before = mark.of("s-1")
    mark.note("s-1", 7)
    mark.note("s-1", 12)
    assert [before, Tidemark(tmp_path).of("s-1"), mark.of("s-2"), mark.newest] == [0, 12, 0, 12]


def test_a_new_stream_takes_its_place(tmp_path: Path) -> None:
    """A store that was begun anew counts from one."""
    mark = Tidemark(tmp_path)
    mark.note("s-1", 12)
    mark.note("s-2", 1)
    assert [mark.of("s-1"), mark.of("s-2")] == [0, 1]


@pytest.mark.parametrize("text", [b"", b"s-1", b"s-1 x", b"\xff\xfe 3", b"s-1 3 4", b"s-1 0"])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, text: bytes) -> None:
    """A power cut may have torn it."""
    (tmp_path / FILE_NAME).write_bytes(text)
    assert Tidemark(tmp_path).of("s-1") == 0


def test_a_place_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    """It is only a help."""
    mark = Tidemark(tmp_path / "gone")
    mark.note("s-1", 7)
    assert mark.of("s-1") == 0
