"""Whether a model goes on in the target language, and answers in it: before training and where stages end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from lingraft.corpus.language_id import Guess, identifier, parse_label, scripts_of_language
from lingraft.errors import MissingExtraError
from lingraft.measure.generation import (
    QUESTIONS,
    Told,
    beginning,
    identified_as,
    questions_in,
    script_of_text,
    told_of,
)
from lingraft.measure.statistics import wilson_interval
from lingraft.measurement import Measurement
from lingraft.model.generate import continue_all
from lingraft.pipeline.settings import DocumentTokens
from lingraft.recipe import Generation, Languages
from lingraft.vocabulary import TokenizerFile

__all__ = ["GenerationCheck"]

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class GenerationCheck:
    """Asks every model of a run for the same continuations.

    Attributes:
        spec: how many, how long, and which questions.
        languages: source and target.
        borders: border tokens.
        texts: held-out documents of the target.
        batch_size: prompts at a time.
    """

    spec: Generation
    languages: Languages
    borders: DocumentTokens
    texts: Sequence[str]
    batch_size: int

    @cached_property
    def prompts(self) -> dict[str, list[str]]:
        """Style → prompts: ``base``, the beginnings of documents, and ``question``; a style without any is left out."""
        count, target = self.spec.prompts, self.languages.target
        begun = list(dict.fromkeys(filter(None, map(beginning, self.texts))))[:count]
        asked = list(self.spec.questions or QUESTIONS.get(target, ())) or questions_in(self.texts, count)
        found = {"base": begun, "question": [f"{question}\n" for question in asked[:count]]}
        return {style: prompts for style, prompts in found.items() if prompts}

    @cached_property
    def _identify(self) -> Callable[[str], Guess] | None:
        """The identifier, where it is installed and knows the target: it calls half of true text by its language."""
        try:
            identify = identifier("small", "measure.generation")
        except MissingExtraError:
            return None
        known = [identified_as(identify, text, self.languages.target) for text in self._true_endings]
        return identify if known and 2 * sum(known) >= len(known) else None

    @cached_property
    def _true_endings(self) -> list[str]:
        """What really follows the beginnings, as long as a continuation is."""
        length = self.spec.tokens * _CHARACTERS_PER_TOKEN
        ends = [text.strip()[len(beginning(text)) :][:length].strip() for text in self.texts]
        return [text for text in ends if text][: self.spec.prompts]

    def rows(
        self, model: nn.Module, tokenizer: TokenizerFile, new_ids: Sequence[int], stage: str, tokens: int
    ) -> Iterator[Measurement]:
        """Yield what a model's own continuations are like, style by style; with the base also what true text is like.

        Args:
            model: the model.
            tokenizer: its own.
            new_ids: ids that the base does not have.
            stage: of the rows.
            tokens: of the rows.
        """
        if not self.spec.prompts:
            return
        prompts = [(style, prompt) for style, some in self.prompts.items() for prompt in some]
        made = continue_all(
            model,
            [tokenizer.encode(prompt) for _, prompt in prompts],
            num_ids=tokenizer.num_ids,
            condition_id=self.borders.condition,
            end_id=self.borders.end,
            max_tokens=self.spec.tokens,
            batch_size=self.batch_size,
        )
        for style in self.prompts:
            told = [
                Told(tuple(ids), tokenizer.decode(ids))
                for (its_style, _), ids in zip(prompts, made, strict=True)
                if its_style == style
            ]
            yield from self._language_rows([one.text for one in told], f"generation/{style}", stage, tokens)
            for name, value in told_of(told, new_ids).items():
                yield Measurement(stage, tokens, f"generation/{style}/{name}", value, count=len(told))
        if stage == "base":
            yield from self._language_rows(self._true_endings, "generation/reference", stage, tokens)

    def _language_rows(self, texts: Sequence[str], where: str, stage: str, tokens: int) -> Iterator[Measurement]:
        """Yield shares in the target by script, by the identifier, and by the better of the two that can tell.

        Scripts cannot tell where source and target share one; where there is no identifier either, nothing does.
        """
        if not texts:
            return
        source, target = self.languages.source, self.languages.target
        written = {code: [script_of_text(text, code) for text in texts] for code in (target, source)}
        judged = None if _share_a_script(source, target) else written
        yield self._share(f"{where}/script_share", written[target], stage, tokens)
        if (identify := self._identify) is not None:
            judged = {code: [identified_as(identify, text, code) for text in texts] for code in (target, source)}
            yield self._share(f"{where}/identified_share", judged[target], stage, tokens)
        if judged is not None:
            yield self._share(f"{where}/target_share", judged[target], stage, tokens)
            yield self._share(f"{where}/source_share", judged[source], stage, tokens)

    def _share(self, name: str, flags: Sequence[bool], stage: str, tokens: int) -> Measurement:
        low, high = wilson_interval(sum(flags), len(flags))
        return Measurement(stage, tokens, name, sum(flags) / len(flags), None, low, high, len(flags))


def _share_a_script(one: str, other: str) -> bool:
    first, second = (scripts_of_language(parse_label(code.replace("_", "-").split("-")[0])) for code in (one, other))
    return bool(first & second) or not first or not second
