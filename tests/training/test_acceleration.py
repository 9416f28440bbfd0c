"""What makes steps cheaper changes no name, and no bit or only the rounding."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from lingraft.errors import TrainingError
from lingraft.model.base import hidden_states, load_model
from lingraft.training.acceleration import accelerate, naming_memory, uncompiled
from lingraft.training.step_report import StepReport


def kept_bytes(model: nn.Module) -> int:
    """Return how many bytes one forward pass keeps for the backward pass, weights aside."""
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def see(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        hidden_states(model, torch.arange(64)[None]).sum().backward()
    return sum(kept.values())


def test_activations_made_again_give_the_same_bits_and_are_not_kept(make_trial, tied_folder) -> None:
    plain, again = make_trial(tied=True).run(), make_trial(tied=True, checkpoint_activations=True).run()
    assert plain.digest() == again.digest()
    model, saving = load_model(tied_folder), load_model(tied_folder)
    accelerate(saving, checkpoint_activations=True)
    assert kept_bytes(saving) < kept_bytes(model) / 4


def test_an_architecture_that_cannot_make_them_again_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"batch\.checkpoint_activations: Linear cannot make its activations again"):
        accelerate(nn.Linear(2, 2), checkpoint_activations=True)


def test_without_either_a_model_is_left_as_it_is(tied_folder) -> None:
    model = load_model(tied_folder)
    accelerate(model)
    assert model.base_model._compiled_call_impl is None
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def dying_at(step: int):
    def die(_: nn.Module, report: StepReport) -> None:
        if report.step == step:
            raise InterruptedError

    return die


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_body_trains_alike_under_the_same_names_and_resumes_to_the_bit(make_trial) -> None:
    plain, compiled = make_trial(tied=False), make_trial(tied=False, compile=True)
    plain.run()
    whole = compiled.run()
    assert [name for name, _ in plain.model.named_parameters()] == [n for n, _ in compiled.model.named_parameters()]
    for one, other in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=0)
    assert compiled.model.base_model._compiled_call_impl is not None
    resumed = make_trial(tied=False, compile=True)
    with pytest.raises(InterruptedError):
        resumed.run(dying_at(5))
    assert resumed.run().last_save() == whole.last_save()
    ids = torch.arange(9)[None]
    with uncompiled(), torch.no_grad():
        eager = hidden_states(compiled.model, ids)
    torch.testing.assert_close(eager, hidden_states(compiled.model, ids), atol=1e-4, rtol=1e-4)


_FAULTS = """
import resource, sys, torch
from lingraft.training.acceleration import keep_freed_memory
if not keep_freed_memory():
    sys.exit(77)
for turn in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        pieces = [torch.empty(2**22).fill_(1) for _ in range(8)]
        del pieces
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_that_is_freed_and_taken_again_is_not_mapped_again() -> None:
    done = subprocess.run([sys.executable, "-c", _FAULTS], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this C library has no such switch")
    assert done.returncode == 0
    # Mapped again, eight times eight pieces of 16 MiB, as the activations of a step are, are 262,144 pages.
    assert int(done.stdout) < 1000


def test_a_device_without_memory_names_what_can_be_changed_and_the_flag() -> None:
    message = r"stage 'all': .*\(CUDA out of memory\).*micro_batch \(now 4\).*--accept-changed memory"
    with pytest.raises(TrainingError, match=message), naming_memory("stage 'all'", 4):
        raise torch.OutOfMemoryError("CUDA out of memory\nand more")
