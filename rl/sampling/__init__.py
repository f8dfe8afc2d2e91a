"""How a token is drawn: the one law that engines follow and validators re-derive. It needs numpy alone.

Token t of a rollout is ``choose(processed(logits, sampling), noise(seed, t, vocab))``: the largest of log-probability
plus Gumbel noise (Gumbel 1954; Maddison et al. 2014, section 2.1), which is a draw from the distribution. The noise
is a function of a seed that the worker does not choose, so whoever has the logits knows the token.
"""

from rl.sampling.distribution import processed
from rl.sampling.ending import Finish, finish
from rl.sampling.noise import choose, noise, noise_at
from rl.sampling.rederivation import Rederived, rederive
from rl.sampling.settings import Sampling

__all__ = [
    "Finish",
    "Rederived",
    "Sampling",
    "choose",
    "finish",
    "noise",
    "noise_at",
    "processed",
    "rederive",
]
