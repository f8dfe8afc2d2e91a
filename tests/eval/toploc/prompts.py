"""Chat prompts, all of one length, so that a batch needs no padding."""

import itertools

from tokenizers import Tokenizer

CONTENT = 24  # tokens of the user's message
COUNT = 208

_TASKS = (
    "Write a short story about {}, in which something unexpected happens to an old friend of the family",
    "Explain to a ten year old child how {} works, with two examples from everyday life and no hard words",
    "List the advantages and the disadvantages of {} for somebody who has very little time and not much money",
    "Give me step by step instructions to learn about {} at home during the winter, with things that I can buy",
    "Compare {} with the way in which people did the same thing a hundred years ago, and say which is better",
    "Write a letter to the mayor of a small town about {}, politely asking for more support from the council",
    "Solve this: a man buys 12 books about {} for 7 dollars each and sells 5 of them for 9 dollars. How much",
    "Write a Python function that stores facts about {} in a dictionary and prints them in alphabetical order",
    "Summarize what historians say about {} and name three open questions that nobody has answered so far",
    "Write a dialogue between a teacher and a curious student about {}, who disagree on almost every point",
    "What would happen to the world if {} disappeared tomorrow? Describe the first day, week and year after",
    "Write a poem of four verses about {} that does not use the letter z and ends with a surprising thought",
    "You are a doctor. A patient asks you whether {} is good for the heart. Answer carefully and in detail",
)
_TOPICS = (
    "sailing across the sea",
    "baking sourdough bread",
    "the planet Jupiter",
    "growing tomatoes",
    "electric trains",
    "playing the violin",
    "medieval castles",
    "honey bees",
    "writing with a pen",
    "mountain rescue dogs",
    "the stock market",
    "volcanoes in Iceland",
    "long distance running",
    "solar panels",
    "chess tournaments",
    "wooden furniture",
)


def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """``COUNT`` prompts of equal length in tokens, ready for the assistant's answer."""
    head = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    )
    before = tokenizer.encode(f"{head}<|im_start|>user\n").ids
    after = tokenizer.encode("<|im_end|>\n<|im_start|>assistant\n").ids
    made = []
    for topic, task in itertools.product(_TOPICS, _TASKS):
        content = tokenizer.encode(
            task.format(topic) + " and please answer in a friendly and complete way"
        ).ids
        made.append(before + content[:CONTENT] + after)
    if len(made) != COUNT or len({len(prompt) for prompt in made}) != 1:
        raise ValueError("prompts must be of one length")
    return made


def content_start(tokenizer: Tokenizer) -> int:
    """Position of the first token of the user's message."""
    head = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    )
    return len(tokenizer.encode(f"{head}<|im_start|>user\n").ids)
