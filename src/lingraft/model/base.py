"""Loads base models, and knows how a model's hidden states become logits.

Every later room works on a local Hugging Face folder with safetensors weights: a hub id is fetched, a GGUF file is
converted once.
"""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import Tensor, nn

from lingraft.errors import ModelError
from lingraft.model.isolation import isolating_inputs
from lingraft.model.locate import BaseLocation, gguf_tokenizer_text, open_gguf, read_json_object, refuse_code_in_config

__all__ = [
    "Head",
    "convert_gguf",
    "fetch_folder",
    "head_of",
    "hidden_states",
    "is_tied",
    "load_model",
    "model_without_weights",
    "quiet_transformers",
]

_HEAD_TOLERANCE = 1e-3


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' own progress bars and advice inside; errors are not touched."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def fetch_folder(location: BaseLocation) -> Path:
    """Return the local folder of a base model, fetching it from the hub if that is where it is.

    Only configuration, tokenizer, card and safetensors files are fetched. A GGUF file has no folder:
    :func:`convert_gguf`.

    Raises:
        ModelError: the hub does not answer or has no such model.
    """
    if location.kind == "gguf":
        raise ModelError(f"{location.reference}: a GGUF file must be converted first")
    if location.path:
        return location.path
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.jinja", "tokenizer.model", "README.md", "*.safetensors"]
    try:
        return Path(snapshot_download(location.reference, revision=location.revision, allow_patterns=patterns))
    except Exception as error:
        raise ModelError(f"base_model: cannot fetch {location.reference!r} from the hub: {error}") from error


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the causal language model in a folder, in evaluation mode on the CPU.

    Raises:
        ModelError: the folder asks for code to be run, has no safetensors weights, lacks one that the configuration
            calls for (transformers would draw it at random), or says its matrices are tied when they are not.
    """
    from transformers import AutoModelForCausalLM

    config = read_json_object(folder / "config.json")
    refuse_code_in_config(config, str(folder))
    with quiet_transformers():
        try:
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{folder}: the weights do not load: {error}") from error
    if missing := sorted(loading["missing_keys"]):
        raise ModelError(f"{folder}: the weights lack {len(missing)} tensors, the first is {missing[0]}")
    _refuse_false_tie(model, str(folder))
    loaded: nn.Module = model.eval()
    return loaded


def model_without_weights(folder: Path) -> nn.Module:
    """Return a model that has its parameters' names and shapes, from its configuration alone, and takes no memory."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with quiet_transformers(), torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    return model


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF file's model into ``folder`` as a plain Hugging Face model with fp32 safetensors weights.

    transformers refuses to save what it loaded from GGUF (it counts as quantised), so a fresh model is built from the
    configuration without that mark and takes over the weights. Whether the head is tied is read from the tensors.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    reader = open_gguf(path)
    # The loader draws a progress bar of its own for every tensor, past transformers' switch for them.
    with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):
        loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        config.tie_word_embeddings = "output.weight" not in {tensor.name for tensor in reader.tensors}
        config.dtype = torch.float32
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = AutoModelForCausalLM.from_config(config)
        model.load_state_dict(loaded.state_dict())
        model.tie_weights()
        model.generation_config = loaded.generation_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(gguf_tokenizer_text(reader, path), encoding="utf-8")


def is_tied(model: nn.Module) -> bool:
    """Whether input and output matrices are the same memory; the configuration's flag is not asked."""
    given: Any = model
    head = given.get_output_embeddings()
    return head is not None and head.weight.data_ptr() == given.get_input_embeddings().weight.data_ptr()


def _refuse_false_tie(model: Any, source: str) -> None:
    said = bool(getattr(model.config.get_text_config(), "tie_word_embeddings", False))
    if said != is_tied(model):
        raise ModelError(
            f"{source}: config.json says tie_word_embeddings is {said}, but the matrices are "
            f"{'shared' if is_tied(model) else 'separate'}; one of the two is wrong"
        )


@dataclass(frozen=True)
class Head:
    """How hidden states become logits: ``softcap(hidden @ weight.T + bias)``, cut off at ``num_ids``.

    Attributes:
        weight: ``(rows, dim)``.
        bias: ``(rows,)`` or None.
        softcap: c in c · tanh(logits / c), or None.
        num_ids: ids that the tokenizer owns; logits of rows past them do not exist anywhere in lingraft.
    """

    weight: Float[Tensor, "rows dim"]
    bias: Float[Tensor, "rows"] | None
    softcap: float | None
    num_ids: int

    def logits(self, hidden: Float[Tensor, "positions dim"]) -> Float[Tensor, "positions ids"]:
        """Return fp32 logits over the tokenizer's ids, the product being made in the type of ``hidden``."""
        weight = self.weight[: self.num_ids].to(hidden.dtype)
        logits = (hidden @ weight.T).float()
        if self.bias is not None:
            logits = logits + self.bias[: self.num_ids].float()
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def head_of(model: nn.Module, num_ids: int) -> Head:
    """Return the head of a model, after checking on a few tokens that it computes what the model computes.

    Raises:
        ModelError: ``num_ids`` exceeds the matrix, or the model's logits are made in another way than ours.
    """
    given: Any = model
    output = given.get_output_embeddings()
    if output is None:
        raise ModelError(f"{type(model).__name__} has no output matrix, so it is not a causal language model")
    if num_ids > output.weight.shape[0]:
        raise ModelError(f"the tokenizer has {num_ids} ids, the output matrix only {output.weight.shape[0]} rows")
    softcap = getattr(given.config.get_text_config(), "final_logit_softcapping", None)
    head = Head(output.weight, getattr(output, "bias", None), softcap, num_ids)
    _refuse_other_heads(given, head)
    return head


def _refuse_other_heads(model: Any, head: Head) -> None:
    ids = torch.arange(8, device=head.weight.device)[None] % head.num_ids
    training = model.training
    with torch.no_grad():
        model.eval()
        theirs = model(input_ids=ids, use_cache=False).logits[0, :, : head.num_ids].float()
        ours = head.logits(hidden_states(model, ids)[0])
        model.train(training)
    scale = theirs.abs().max().item() or 1.0
    error = (theirs - ours).abs().max().item() / scale
    if error > _HEAD_TOLERANCE:
        raise ModelError(
            f"{type(model).__name__} makes its logits in a way that is not supported: "
            f"ours differ by {error:.2g} of their size"
        )


def hidden_states(
    model: nn.Module,
    ids: Int[Tensor, "batch position"],
    mask: Int[Tensor, "batch position"] | None = None,
    documents: Int[Tensor, "batch position"] | None = None,
) -> Float[Tensor, "batch position dim"]:
    """Return the states that the head reads (after the last norm).

    ``mask`` is 1 for tokens, 0 for padding behind. With ``documents``, the number of each token's document in its row,
    attention stays inside documents (:mod:`lingraft.model.isolation`); such rows are full, and ``mask`` is not asked.
    """
    given: Any = model
    inputs = {"attention_mask": mask} if documents is None else isolating_inputs(model, documents)
    output: Tensor = given.base_model(input_ids=ids, use_cache=False, **inputs).last_hidden_state
    return output
