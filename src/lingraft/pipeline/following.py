"""A run by several processes, from the side of those that are not rank 0: they train, and do nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from lingraft.corpus.loader import SequenceLoader
from lingraft.corpus.store import open_store
from lingraft.errors import RecipeError
from lingraft.model.base import Head, head_of, load_model
from lingraft.model.freeze import Trainable, choose_trainable
from lingraft.pipeline.companions import SourceReader, guard_makers
from lingraft.pipeline.ranks import whole_model
from lingraft.pipeline.settings import stage_mix
from lingraft.pipeline.stopping import Stopper
from lingraft.pipeline.training import refuse_changed_weights, stage_plan
from lingraft.recipe import Recipe
from lingraft.run import fingerprint
from lingraft.training.acceleration import naming_memory
from lingraft.training.distributed import Ranks, error_of, write_tensors
from lingraft.training.stage import train_stage
from lingraft.training.stage_plan import StageCallbacks, StagePlan

__all__ = ["follow"]


def follow(recipe: Recipe, ranks: Ranks) -> None:
    """Train whatever stages rank 0 calls for, until it says that the run is over.

    Raises:
        LingraftError: what rank 0 has failed with, or a stage.
    """
    with Stopper() as stopper:
        while "end" not in (order := ranks.tell()):
            stage = recipe.stages[order["index"]]
            with naming_memory(f"stage {stage.name!r}", stage.batch.micro_batch):
                _Follower(recipe, order, ranks, stopper).train()
    if failure := order["end"]:
        raise error_of(failure[0], f"rank 0: {failure[1]}")


@dataclass
class _Follower:
    """One stage as rank 0 has called for it."""

    recipe: Recipe
    order: Mapping[str, Any]
    ranks: Ranks
    stopper: Stopper

    def train(self) -> None:
        order, ranks, start = self.order, self.ranks, Path(self.order["start"])
        model, head, trainable, loader, plan, carried = ranks.together(self._prepared)

        def gather(*_: int) -> None:
            whole_model(model, trainable.names, start, ranks)

        def gather_moments(state: dict[str, torch.Tensor]) -> None:
            if order["keeps_moments"]:
                write_tensors(None, state)

        callbacks = StageCallbacks(
            measure=gather,
            measure_averaged=gather,
            finish_averaged=gather,
            finish_optimizer=gather_moments,
            should_stop=lambda: self.stopper.requested,
        )
        train_stage(
            model,
            head,
            trainable,
            loader,
            plan,
            Path(order["checkpoints"]),
            order["fingerprints"],
            callbacks,
            carried=carried,
            accept=order["accept"],
            ranks=ranks,
        )
        gather()

    def _prepared(self) -> tuple[nn.Module, Head, Trainable, SequenceLoader, StagePlan, dict[str, torch.Tensor]]:
        order, start = self.order, Path(self.order["start"])
        if order["recipe"] != fingerprint(self.recipe.model_dump(mode="json")):
            raise RecipeError(f"rank {self.ranks.rank} was started with another recipe than rank 0")
        model, num_ids = load_model(start), order["num_ids"]
        refuse_changed_weights(model, order["digest"], start)
        words = self.recipe.stages[order["index"]].trains
        trainable = choose_trainable(model, words, tuple(order["new_ids"]), num_ids, blocks=order["blocks"])
        carried = load_file(order["carried"]) if order["carried"] else {}
        return model, head_of(model, num_ids), trainable, self._loader(), self._plan(), carried

    def _loader(self) -> SequenceLoader:
        order = self.order
        stage = self.recipe.stages[order["index"]]
        stores = {
            name: open_store(Path(folder), tokenizer_sha256=tokenizer, corpus_sha256=corpus)
            for name, (folder, tokenizer, corpus) in order["stores"].items()
        }
        return SequenceLoader(
            stores,
            stage_mix(self.recipe, order["index"], order["sizes"]),
            sequences=stage.batch.sequences,
            sequence_length=stage.batch.sequence_length,
            seed=self.recipe.seed,
            consumed=order["consumed"],
        )

    def _plan(self) -> StagePlan:
        index = self.order["index"]
        plan, length = stage_plan(self.recipe, index), self.recipe.stages[index].batch.sequence_length
        # Guards that read source text are not for several processes.
        source = SourceReader({}, length, Path(self.order["checkpoints"]), "", self.ranks.device).text()
        return replace(plan, companions=(*guard_makers(self.recipe, index, source), *plan.companions))
