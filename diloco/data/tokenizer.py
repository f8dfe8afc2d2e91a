"""Byte-level byte-pair tokenizer, trained once when a run is made; the genesis carries it as JSON text."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from protocol.errors import Code, NodeError

END = "<|end|>"
"""Stands after each document; its id is 0."""


def train_tokenizer(documents: Iterable[str], vocab: int) -> str:
    """Train on the run's training texts.

    Args:
        documents: Texts.
        vocab: Largest size, at least 257 (each byte and the end mark).

    Returns:
        The tokenizer as JSON text. Every text can be encoded with it and decodes to itself.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return str(tokenizer.to_str())


def load_tokenizer(text: str, vocab: int) -> Tokenizer:
    """Read the genesis' tokenizer.

    Args:
        text: JSON text as `train_tokenizer` gave it.
        vocab: Rows of the model's embedding; the tokenizer may not have more tokens.

    Raises:
        NodeError: TRN_DATA when it is not a tokenizer that this run can use.
    """
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise NodeError(Code.TRN_DATA, f"The genesis' tokenizer cannot be read: {error}.") from None
    if tokenizer.get_vocab_size() > vocab or tokenizer.token_to_id(END) != 0:
        raise NodeError(
            Code.TRN_DATA,
            f"The genesis' tokenizer has {tokenizer.get_vocab_size()} tokens for {vocab} rows, or no end mark.",
        )
    return tokenizer
