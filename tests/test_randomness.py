import numpy as np
import pytest

from reconform.randomness import Streams, root_seed
from refusals import refused


def state(seed):
    return seed.generate_state(4).tolist()


def test_streams_are_the_spawned_children():
    parent = np.random.SeedSequence(5).spawn(2)[1]
    children = np.random.SeedSequence(5).spawn(2)[1].spawn(4)
    streams = Streams(parent, 4)
    assert [state(s) for s in streams] == [state(c) for c in children]
    assert state(streams[-1]) == state(children[3])
    assert [state(s) for s in streams[1:3]] == [state(c) for c in children[1:3]]
    with pytest.raises(IndexError):
        streams[4]


def test_a_seed_sequence_is_copied_so_that_its_children_repeat():
    seed = np.random.SeedSequence(3)
    assert state(root_seed(seed).spawn(1)[0]) == state(root_seed(seed).spawn(1)[0])
    assert state(root_seed(3)) == state(seed)
    generator = np.random.RandomState(0)  # which is advanced
    assert state(root_seed(generator)) != state(root_seed(generator))
    assert len(Streams(seed, 10**6)) == 10**6


@pytest.mark.parametrize("bad", ["x", -1, 1.5])
def test_what_is_no_seed_is_refused(bad):
    refused("random_state must be", root_seed, bad)
