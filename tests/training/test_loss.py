"""The chunked loss against torch's own on full logits."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lingraft.errors import TrainingError
from lingraft.model.base import Head
from lingraft.training import chunks
from lingraft.training import loss as loss_module
from lingraft.training.loss import chunked_cross_entropy, token_log_probabilities

DIM, ROWS, POSITIONS = 16, 53, 37


def problem(num_ids: int = ROWS, *, bias: bool = False, softcap: float | None = None) -> tuple[Tensor, Tensor, Head]:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(POSITIONS, DIM, generator=generator).requires_grad_()
    weight = torch.randn(ROWS, DIM, generator=generator).requires_grad_()
    targets = torch.randint(num_ids, (POSITIONS,), generator=generator)
    return hidden, targets, Head(weight, torch.randn(ROWS, generator=generator) if bias else None, softcap, num_ids)


def full_losses(hidden: Tensor, targets: Tensor, head: Head) -> Tensor:
    """Return the losses with all logits at once, written out again."""
    logits = hidden @ head.weight.T
    if head.bias is not None:
        logits = logits + head.bias
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    logits = torch.cat([logits[:, : head.num_ids], torch.full_like(logits[:, head.num_ids :], -torch.inf)], dim=1)
    return cross_entropy(logits, targets, reduction="none")


@pytest.mark.parametrize("chunk", [1, 7, 36, 37, 512])
@pytest.mark.parametrize(
    "options", [{}, {"bias": True}, {"softcap": 1.0}, {"num_ids": 41}, {"num_ids": 41, "bias": True, "softcap": 5.0}]
)
def test_loss_and_both_gradients_equal_the_full_softmax(chunk: int, options: dict) -> None:
    hidden, targets, head = problem(**options)
    total, losses = chunked_cross_entropy(hidden, targets, head, chunk=chunk)
    (total / 3).backward()
    ours = [losses, hidden.grad, head.weight.grad]
    hidden.grad = head.weight.grad = None
    expected = full_losses(hidden, targets, head)
    (expected.sum() / 3).backward()
    for one, other in zip(ours, [expected.detach(), hidden.grad, head.weight.grad], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert total.item() == pytest.approx(expected.sum().item(), rel=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"bias": True}, {"softcap": 2.0}, {"num_ids": 41, "bias": True, "softcap": 5.0}]
)
@pytest.mark.parametrize("weight", [1e-4, 0.3])
def test_the_z_loss_and_its_gradients_equal_autograd_s(options: dict, weight: float) -> None:
    """arXiv 2204.02311: the sum gets weight · log² Z of every position; the reported losses do not."""
    hidden, targets, head = problem(**options)
    total, losses = chunked_cross_entropy(hidden, targets, head, chunk=7, z_loss=weight)
    total.backward()
    ours = [hidden.grad, head.weight.grad]
    hidden.grad = head.weight.grad = None
    expected = full_losses(hidden, targets, head)
    log_z = head.logits(hidden).logsumexp(dim=1)
    (expected.sum() + weight * log_z.square().sum()).backward()
    torch.testing.assert_close(losses, expected.detach(), atol=1e-5, rtol=1e-5)
    assert total.item() == pytest.approx((expected.sum() + weight * log_z.square().sum()).item(), rel=1e-6)
    for one, other in zip(ours, [hidden.grad, head.weight.grad], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_few_logits_at_a_time_and_few_rows_of_the_gradient_change_nothing(monkeypatch) -> None:
    """Large vocabularies get smaller chunks; all pieces end in a rest here."""
    found = []
    for logits, worked, rows in (
        (1 << 25, 1 << 21, 16384),
        (1 << 25, 5 * ROWS, 16),
        (7 * ROWS, 3 * ROWS, 7),
        (1, 1, 1),
    ):
        monkeypatch.setattr(chunks, "LOGITS", logits)
        monkeypatch.setitem(chunks.WORKED, "cpu", worked)
        monkeypatch.setattr(loss_module, "_ROWS", rows)
        hidden, targets, head = problem()
        total, losses = chunked_cross_entropy(hidden, targets, head)
        total.backward()
        found.append([losses, hidden.grad, head.weight.grad])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("options", "learning"), [({}, slice(40, 53)), ({"num_ids": 41}, slice(30, 41))])
def test_rows_that_do_not_learn_get_no_gradient_and_the_others_the_same(options: dict, learning: slice) -> None:
    whole, part = problem(**options), problem(**options)
    for (hidden, targets, head), rows in ((whole, slice(None)), (part, learning)):
        chunked_cross_entropy(hidden, targets, head, chunk=7, learning=rows)[0].backward()
    torch.testing.assert_close(part[2].weight.grad[learning], whole[2].weight.grad[learning])
    assert torch.equal(part[0].grad, whole[0].grad)
    others = torch.ones(ROWS, dtype=torch.bool)
    others[learning] = False
    assert not part[2].weight.grad[others].any()


@pytest.mark.parametrize("rows", [1, 31, 127, 129, 1000, 32_000])
def test_o53_vocabularies_of_any_size_agree_with_the_plain_loss(rows: int) -> None:
    """32,000 ids with soft-capping 1 is the case; the other sizes are no multiples of any block."""
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(9, DIM, generator=generator).requires_grad_()
    weight = torch.randn(rows, DIM, generator=generator).requires_grad_()
    head, targets = Head(weight, None, 1.0, rows), torch.randint(rows, (9,), generator=generator)
    total, _ = chunked_cross_entropy(hidden, targets, head, chunk=4)
    total.backward()
    ours = [hidden.grad, weight.grad]
    hidden.grad = weight.grad = None
    expected = cross_entropy(torch.tanh(hidden @ weight.T), targets, reduction="sum")
    expected.backward()
    assert total.item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-6)
    for one, other in zip(ours, [hidden.grad, weight.grad], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_rows_that_no_token_owns_get_no_gradient() -> None:
    hidden, targets, head = problem(num_ids=41)
    chunked_cross_entropy(hidden, targets, head)[0].backward()
    assert not head.weight.grad[41:].any()
    assert head.weight.grad[:41].any()


def test_bf16_is_close() -> None:
    hidden, targets, head = problem()
    total, losses = chunked_cross_entropy(hidden, targets, head, dtype=torch.bfloat16)
    total.backward()
    low = hidden.grad
    assert losses.dtype == torch.float32
    hidden.grad = None
    full_losses(hidden, targets, head).sum().backward()
    assert torch.nn.functional.cosine_similarity(low.flatten(), hidden.grad.flatten(), dim=0) > 0.999
    assert losses.mean().item() == pytest.approx(full_losses(hidden, targets, head).mean().item(), rel=0.01)


def test_the_logits_of_all_positions_never_exist_at_once() -> None:
    hidden, targets, head = problem()
    sizes: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.ndim == 2 and ROWS in result.shape and DIM not in result.shape:
                sizes.append(result.numel() // ROWS)
            return result

    with Watch():
        chunked_cross_entropy(hidden, targets, head, chunk=5)
    assert max(sizes) == 5


@pytest.mark.parametrize("trains", ["hidden", "weight"])
def test_only_what_trains_gets_a_gradient(trains: str) -> None:
    hidden, targets, head = problem()
    (head.weight if trains == "hidden" else hidden).requires_grad_(False)
    chunked_cross_entropy(hidden, targets, head)[0].backward()
    assert (hidden.grad is not None, head.weight.grad is not None) == (trains == "hidden", trains == "weight")


def test_losses_of_positions_are_only_for_reading() -> None:
    hidden, targets, head = problem()
    total, losses = chunked_cross_entropy(hidden, targets, head)
    assert total.requires_grad
    assert not losses.requires_grad


def test_o51_a_target_that_equals_the_pad_id_keeps_its_loss() -> None:
    hidden, targets, head = problem()
    targets[::3] = 0
    _, losses = chunked_cross_entropy(hidden, targets, head)
    torch.testing.assert_close(losses, full_losses(hidden, targets, head).detach(), atol=1e-5, rtol=1e-5)
    assert (losses[::3] > 0).all()


@pytest.mark.parametrize("options", [{}, {"num_ids": 41, "bias": True, "softcap": 5.0}])
@pytest.mark.parametrize("chunk", [1, 10, 64])
def test_log_probabilities_are_the_log_softmax_and_the_greedy_choice_its_top(options: dict, chunk: int) -> None:
    hidden, targets, head = problem(**options)
    scores, best = token_log_probabilities(hidden, targets, head, chunk=chunk)
    torch.testing.assert_close(scores, -full_losses(hidden, targets, head).detach(), atol=1e-5, rtol=1e-5)
    assert torch.equal(best, head.logits(hidden).argmax(dim=1))
    assert int(best.max()) < head.num_ids


def test_no_position_is_no_loss() -> None:
    hidden, targets, head = problem()
    total, losses = chunked_cross_entropy(hidden[:0], targets[:0], head)
    assert (total.item(), len(losses)) == (0, 0)


def test_gradients_are_given_once() -> None:
    hidden, head = torch.randn(3, 4, requires_grad=True), Head(torch.randn(5, 4), None, None, 5)
    total, _ = chunked_cross_entropy(hidden, torch.tensor([0, 1, 2]), head)
    total.backward(retain_graph=True)
    with pytest.raises(TrainingError, match="only once"):
        total.backward()


def test_a_second_loss_leaves_the_first_one_s_gradients_alone() -> None:
    head = Head(torch.randn(7, 4, generator=torch.Generator().manual_seed(0)), None, None, 7)
    states = [torch.randn(6, 4, generator=torch.Generator().manual_seed(n), requires_grad=True) for n in (1, 2)]
    targets = torch.tensor([0, 1, 2, 6, 5, 4])
    both = [chunked_cross_entropy(hidden, targets, head, chunk=4)[0] for hidden in states]
    for total in both:
        total.backward()
    for hidden in states:
        alone = hidden.detach().clone().requires_grad_()
        cross_entropy(alone @ head.weight.T, targets, reduction="sum").backward()
        torch.testing.assert_close(hidden.grad, alone.grad)
