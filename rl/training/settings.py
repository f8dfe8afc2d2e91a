"""How a policy is trained: a section for a run file, and what the workers are told of it."""

from typing import Annotated, Literal

from pydantic import Field

from diloco.config import Section


class ObjectiveSection(Section):
    """The objective of a policy: which loss, what keeps it near a reference, what keeps it from certainty."""

    loss: Literal["two-sided-clip", "icepop", "policy-gradient"] = "two-sided-clip"
    """Loss of a sampled token: GRPO with a ratio clipped on both sides, importance sampling with a mask, REINFORCE."""
    advantage: Literal["standardised", "centred"] = "standardised"
    """A reward minus its group's mean, divided by the group's standard deviation or not."""
    epsilon: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """`two-sided-clip`: how far from 1 a ratio has an effect."""
    delta: Annotated[float, Field(gt=1.0, le=1000.0)] = 4.0
    """`two-sided-clip`: largest ratio that counts where the advantage is negative."""
    alpha: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """`icepop`: smallest ratio that counts."""
    beta: Annotated[float, Field(ge=1.0, le=1000.0)] = 5.0
    """`icepop`: largest ratio that counts."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL divergence from the reference policy, which is the run's initial weights."""
    kl_coefficient: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Weight of that divergence in the loss; with 0 there is no forward pass of the reference."""
    entropy_coefficient: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Weight of the mean entropy, which the loss rewards."""
    temperature: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0
    """The temperature that rollouts are sampled with: logits are divided by it on both sides of a ratio."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The cut that rollouts are sampled with: both sides of a ratio are of what it kept."""
    top_k: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The same of the largest."""
    pass_tokens: Annotated[int, Field(ge=1, le=2**24)] = 4096
    """Tokens of one forward and backward pass of a worker, in whole packed rows and at least one."""
