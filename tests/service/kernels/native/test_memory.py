"""Memory that large searches hand on from call to call."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_int64, c_void_p, memset

import pytest
from shortlist.kernels.native.build import FLAGS, SOURCE_FOLDER, CompilerMissing, find_compiler

LARGE, SMALL, KEPT = 1 << 20, 1 << 10, 16


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """The store by itself: the library shows nothing of it."""
    try:
        compiler = find_compiler()
    except CompilerMissing as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("memory") / "memory.so"
    flags = [flag for flag in FLAGS if not flag.startswith("-fvisibility")]
    source = SOURCE_FOLDER / "system/memory.c"
    subprocess.run([*compiler.split(), *flags, "-shared", str(source), "-o", str(path)], check=True)
    library = CDLL(str(path))
    library.take_memory.restype, library.take_memory.argtypes = c_void_p, [c_int64]
    library.give_memory.restype, library.give_memory.argtypes = None, [c_void_p]
    return library


def test_large_memory_is_taken_again_where_it_is_large_enough(memory):
    first = memory.take_memory(LARGE)
    memory.give_memory(first)
    assert memory.take_memory(LARGE) == first
    memory.give_memory(first)
    larger = memory.take_memory(4 * LARGE)  # frees the one that is too small
    memset(larger, 1, 4 * LARGE)
    memory.give_memory(larger)
    assert memory.take_memory(LARGE) == larger
    memory.give_memory(larger)


def test_no_memory_is_handed_out_twice(memory):
    pieces = [memory.take_memory(LARGE) for _ in range(2 * KEPT)]
    assert len(set(pieces)) == len(pieces)
    for piece in (*pieces, None):
        memory.give_memory(piece)
    again = [memory.take_memory(LARGE) for _ in range(KEPT)]
    assert set(again) <= set(pieces)
    assert len(set(again)) == KEPT
    for piece in again:
        memory.give_memory(piece)


def test_threads_share_it(memory):
    def use(number):
        for _ in range(200):
            piece = memory.take_memory(LARGE + 64 * number)
            memset(piece, number, 64)
            seen = (c_int64 * 8).from_address(piece)[:]
            memory.give_memory(piece)
            if len(set(seen)) != 1 or seen[0] & 0xFF != number:
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(1, 9)))


def test_small_memory_is_not_kept(memory):
    kept = memory.take_memory(LARGE)
    memory.give_memory(kept)
    piece = memory.take_memory(SMALL)
    assert piece != kept
    memory.give_memory(piece)
