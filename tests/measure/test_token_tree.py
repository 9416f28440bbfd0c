"""Trees of tokens by hand."""

import numpy as np

from lingraft.measure.token_tree import Branch, TokenTree


def test_shared_tokens_stand_once_and_each_sees_its_ancestors() -> None:
    tree = TokenTree([Branch((5, 6, 7), 2), Branch((5, 6, 8, 9), 2), Branch((5, 6, 8), 1)], 0)
    assert tree.tokens == [0, 5, 6, 7, 8, 9]
    assert tree.positions == [0, 1, 2, 3, 3, 4]
    assert tree.paths == [[0, 1, 2, 3], [0, 1, 2, 4, 5], [0, 1, 2, 4]]
    seen = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 4, 5], [6]]
    expected = np.array([[place in row for place in range(7)] for row in seen])
    assert (tree.visible(7) == expected).all()


def test_the_same_token_behind_other_tokens_is_another_node() -> None:
    tree = TokenTree([Branch((1, 2, 3), 0), Branch((4, 2, 3), 0)], 0)
    assert tree.tokens == [0, 1, 2, 3, 4, 2, 3]
    assert tree.positions == [0, 1, 2, 3, 1, 2, 3]


def test_an_empty_branch_is_the_root_alone() -> None:
    assert TokenTree([Branch((), 0)], 9).paths == [[0]]
