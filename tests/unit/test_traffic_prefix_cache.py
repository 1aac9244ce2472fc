"""The prefix cache: what is not moved again, what makes room, and a prompt that is wholly cached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.prefix_cache import PrefixCache
from traffic.request import Request


def test_nothing_is_there_at_first_and_everything_after_it_was_inserted() -> None:
    cache = PrefixCache(None, 100)
    assert cache.missing("d1", (1, 2, 3)) == (1, 2, 3)
    cache.insert("d1", (1, 2, 3))
    assert cache.missing("d1", (1, 2, 3)) == ()
    assert cache.missing("d2", (1, 2, 3)) == (1, 2, 3)


def test_only_the_leading_run_counts() -> None:
    cache = PrefixCache(None, 100)
    cache.insert("d1", (1, 2, 4))
    assert cache.hits("d1", (1, 2, 3, 4)) == 2
    assert cache.missing("d1", (1, 2, 3, 4)) == (3, 4)
    assert cache.missing("d1", (9, 1, 2)) == (9, 1, 2)


def test_asking_leaves_the_cache_as_it_is() -> None:
    cache = PrefixCache(200, 100)
    cache.insert("d1", (1,))
    cache.insert("d1", (2,))
    cache.missing("d1", (1,))
    cache.insert("d1", (3,))
    assert (cache.hits("d1", (1,)), cache.hits("d1", (2,)), cache.held("d1")) == (0, 1, 2)


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(399, 100)  # room for three whole blocks
    for block in (1, 2, 3, 1, 4):
        cache.insert("d1", (block,))
    assert [cache.hits("d1", (block,)) for block in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_of_a_prompt_larger_than_the_cache_its_beginning_stays() -> None:
    cache = PrefixCache(200, 100)
    cache.insert("d1", (1, 2, 3, 4, 5))
    assert cache.missing("d1", (1, 2, 3, 4, 5)) == (3, 4, 5)


def test_a_prompts_end_goes_before_its_beginning() -> None:
    cache = PrefixCache(300, 100)
    cache.insert("d1", (1, 2, 3))
    cache.insert("d1", (7,))
    assert cache.missing("d1", (1, 2, 3)) == (3,)


@pytest.mark.parametrize("capacity_bytes", [0, 99])
def test_without_room_for_a_block_nothing_is_cached(capacity_bytes: int) -> None:
    cache = PrefixCache(capacity_bytes, 100)
    cache.insert("d1", (1,))
    assert cache.missing("d1", (1,)) == (1,)


@pytest.mark.parametrize(("capacity_bytes", "block_bytes"), [(-1, 1), (1, 0), (None, -1)])
def test_sizes_that_are_none(capacity_bytes: int | None, block_bytes: int) -> None:
    with pytest.raises(ValueError, match="^needs a positive block and a capacity that is not negative$"):
        PrefixCache(capacity_bytes, block_bytes)


def test_a_fully_cached_prompt_moves_no_token() -> None:
    request = Request(0, 0, 1_100, 5, None, (1, 2, 3))
    cache = PrefixCache(None, 100)
    cache.insert("d1", request.prefix_blocks)
    assert request.tokens_after(cache.hits("d1", request.prefix_blocks)) == 0


@pytest.mark.parametrize(("hits", "left"), [(0, 1_100), (1, 588), (2, 76), (3, 0)])
def test_tokens_after_whole_blocks_and_a_last_one_that_is_not_full(hits: int, left: int) -> None:
    assert Request(0, 0, 1_100, 5, None, (1, 2, 3)).tokens_after(hits) == left


@given(st.lists(st.lists(st.integers(0, 9), unique=True), max_size=20), st.integers(0, 12))
def test_a_cache_never_holds_more_than_its_room(prompts: list[list[int]], room: int) -> None:
    cache = PrefixCache(room * 10, 10)
    for prompt in prompts:
        cache.insert("d1", prompt)
        assert cache.held("d1") <= room
        # What has just been used is there as far as it fits.
        assert cache.hits("d1", prompt) == min(len(prompt), room)
