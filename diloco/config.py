"""What a run is made of: the sections that a run file and a genesis share.

Every key has a default, and the defaults together are the demonstration run: a Llama of 2.1 million parameters that
learns Python's own documentation and source within minutes on two processor cores.
All sections are frozen and refuse unknown keys; the run file adds the line numbers to what pydantic says.
Durations are written as text ("5 s", "250 ms", "2 min") and held as `timedelta`.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from protocol.units import duration

PEER_ID_PATTERN = r"^12D3KooW[1-9A-HJ-NP-Za-km-z]{44}$"


def _parse_duration(value: Any) -> Any:
    return duration(value) if isinstance(value, str) else value


def duration_text(value: timedelta) -> str:
    """The one canonical text of a duration: whole milliseconds, in seconds where that is exact."""
    milliseconds = round(value / timedelta(milliseconds=1))
    return f"{milliseconds // 1000} s" if milliseconds % 1000 == 0 else f"{milliseconds} ms"


def _whole_milliseconds(value: timedelta) -> timedelta:
    if value % timedelta(milliseconds=1) or value < timedelta(0):
        raise ValueError("a duration is a whole number of milliseconds and not negative")
    return value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(lambda value: _whole_milliseconds(value) if isinstance(value, timedelta) else value),
    BeforeValidator(_parse_duration),
    PlainSerializer(duration_text, return_type=str),
]
Texts = Annotated[tuple[str, ...], BeforeValidator(_tuple)]
Changeable = Literal["inner.lr", "outer.lr", "outer.momentum", "round.inner_steps"]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    """Base of all sections: frozen, strict, no unknown keys, no NaN or infinity, defaults checked too."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


class RunSection(Section):
    """`[run]`: the name of the run and how long it goes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "demo"
    """Lower-case letters, digits and dashes; people see it, and the directory's keys begin with it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides the initial weights, the split of the corpus and the order of the samples."""
    rounds: Annotated[int, Field(ge=1, le=10_000_000)] = 10
    """Rounds after which the run is finished; the learning-rate schedule ends there too."""
    protocol: Annotated[int, Field(ge=1, le=1)] = 1
    """Version of the protocol that all members speak."""


class ModelSection(Section):
    """`[model]`: the shape of the model."""

    architecture: Literal["llama"] = "llama"
    """The only architecture so far: pre-norm decoder with rotary positions, RMSNorm, SwiGLU, grouped queries."""
    hidden: Annotated[int, Field(ge=8, le=65_536)] = 192
    """Width of the residual stream; a multiple of `heads`."""
    layers: Annotated[int, Field(ge=1, le=512)] = 4
    """Number of decoder layers."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 6
    """Query heads; `hidden / heads` is even, for the rotary positions."""
    kv_heads: Annotated[int, Field(ge=1, le=1024)] = 3
    """Key and value heads; divides `heads`."""
    intermediate: Annotated[int, Field(ge=8, le=262_144)] = 512
    """Width of the feed-forward layers."""
    vocab: Annotated[int, Field(ge=260, le=262_144)] = 2048
    """Rows of the embedding and largest size of the tokenizer; 257 are taken by single bytes and the end mark."""
    context: Annotated[int, Field(ge=8, le=1_048_576)] = 128
    """Tokens of one sample, and the most that the model sees at once."""
    tie: bool = True
    """Whether the output layer uses the embedding's weights."""
    weights: Annotated[str, Field(max_length=512)] = ""
    """A safetensors file that the run begins with, relative to the run file's folder; without one they are drawn."""

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden ({self.hidden}) must be an even multiple of heads ({self.heads})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self


class DataSection(Section):
    """`[data]`: what the run learns from."""

    source: Literal["python-stdlib", "text", "none"] = "python-stdlib"
    """`python-stdlib`: documentation and sources of the Python that runs `init`. `text`: UTF-8 files in `paths`.
    `none`: no text at all, for a run that learns from rollouts; its tokens are bytes."""
    paths: Texts = ()
    """For `text`: files, or folders whose *.txt, *.md, *.rst and *.py are taken, relative to the run file's folder."""
    max_bytes: Annotated[int, Field(ge=10_000, le=2**34)] = 3_000_000
    """Files are taken in an order that the seed fixes until this many bytes are reached."""
    validation_share: Annotated[float, Field(gt=0.0, le=0.5)] = 0.05
    """Share of the bytes that is held out, by whole files."""

    @model_validator(mode="after")
    def _paths_fit_source(self) -> Self:
        if (self.source == "text") != bool(self.paths):
            raise ValueError('paths belong to source = "text": give both or neither')
        return self


class InnerSection(Section):
    """`[inner]`: the optimizer of a member's own steps."""

    optimizer: Literal["adamw"] = "adamw"
    """The only inner optimizer so far; its state stays with the member over rounds."""
    lr: Annotated[float, Field(ge=0.0, le=1.0)] = 1e-3
    """Highest learning rate of the schedule; the outer momentum multiplies it (by 10 in the long run at 0.9)."""
    betas: Annotated[tuple[Share, Share], BeforeValidator(_tuple)] = (0.9, 0.95)
    """Decay of AdamW's first and second moment."""
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Decoupled decay, of matrices only, not of norms."""
    warmup_steps: Annotated[int, Field(ge=0, le=10_000_000)] = 30
    """Linear warm-up over the optimizer's own first steps, so a late joiner or a restarted worker warms up as well."""
    schedule: Literal["constant", "cosine", "wsd"] = "wsd"
    """After the warm-up: constant, a half cosine to `final_share`, or stable with a linear decay at the end."""
    final_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Learning rate at the end of the run as a share of `lr`."""
    decay_share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.4
    """For `wsd`: the last part of the run in which the rate falls."""
    clip: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """Largest norm of a step's gradient."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16` computes under autocast; parameters, moments and the outer state stay fp32."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 8
    """Samples of one forward and backward pass of a node, shared by its workers."""
    accumulation: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Passes whose gradients one step adds up; a step uses `batch * accumulation` samples."""

    @property
    def samples_per_step(self) -> int:
        """Samples that one inner step of a node uses."""
        return self.batch * self.accumulation


class OuterSection(Section):
    """`[outer]`: the Nesterov step that all members take together (docs/pseudo-gradient.md)."""

    lr: Annotated[float, Field(ge=0.0, le=10.0)] = 0.7
    """Outer learning rate."""
    momentum: Share = 0.9
    """Outer Nesterov momentum."""


class RoundSection(Section):
    """`[round]`: how long a round is, who takes part, how its update travels."""

    inner_steps: Annotated[int, Field(ge=1, le=100_000)] = 20
    """H, the inner steps of a round; with a `time_budget` the most that a lease covers."""
    time_budget: Duration | None = None
    """When set, a round's training ends after this time or `inner_steps`, whichever is first."""
    start_members: Annotated[int, Field(ge=1, le=31)] = 1
    """The founder waits for so many members, itself included, before it writes the start record."""
    start_within: Duration = timedelta(seconds=120)
    """... but no longer than this."""
    ghost_rounds: Annotated[int, Field(ge=0, le=1000)] = 0
    """Rounds that a joiner follows at weight 0 before it contributes."""
    max_voters: Annotated[int, Field(ge=1, le=31)] = 31
    """Most seats that vote."""
    codec: Literal["fp32", "fp16", "int8"] = "int8"
    """Encoding of pseudo-gradients on the wire."""
    aggregation: Literal["mean", "trimmed_mean", "median"] = "mean"
    """How contributions become one. `trimmed_mean` leaves out a fifth of the weight at both ends of each value,
    `median` all but the middle: both bound what liars do, from five contributors on."""
    chunk: Annotated[int, Field(ge=256, le=2**20, multiple_of=256)] = 2**16
    """Values of one chunk of the flat layout; 2**20 suits models above about 100 million parameters."""
    checkpoint_every: Annotated[int, Field(ge=1, le=8)] = 4
    """Rounds between two checkpoints on a member's disk; the reduced bytes of the rounds between are kept too."""
    changeable: Annotated[tuple[Changeable, ...], BeforeValidator(_tuple)] = (
        "inner.lr",
        "outer.lr",
        "outer.momentum",
        "round.inner_steps",
    )
    """Parameters that the operator may change while the run goes on."""
    evaluation_batches: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Batches of the validation slice that one evaluation reads, always the same ones."""


class DeadlineSection(Section):
    """`[deadline]`: how long anyone waits for anyone, on its own monotonic clock (docs/rounds.md, rules 8 and 13)."""

    ready_floor: Duration = timedelta(seconds=5)
    """Others' Readys are waited for at least so long after one's own."""
    ready_factor: Annotated[float, Field(ge=1.0, le=100.0)] = 1.5
    """... and at least this factor times the median arrival."""
    ready_mad: Annotated[float, Field(ge=0.0, le=100.0)] = 4.0
    """... and at least the median plus this many median absolute deviations."""
    ready_max: Duration = timedelta(seconds=120)
    """... but never longer than this."""
    attempt: Duration = timedelta(seconds=15)
    """Timer of a round's first attempt, which runs while a quorum is ready."""
    attempt_growth: Annotated[float, Field(ge=1.0, le=10.0)] = 1.5
    """Factor of each later attempt's timer."""
    attempt_max: Duration = timedelta(seconds=120)
    """Longest timer of an attempt; must exceed the longest reduce."""
    progress: Duration = timedelta(seconds=5)
    """A transfer that moves no byte for so long is given up."""
    heartbeat: Duration = timedelta(seconds=2)
    """Time between signs of life."""
    silence: Duration = timedelta(seconds=8)
    """A peer that neither speaks nor moves bytes for so long is gone."""
    lost_after: Duration = timedelta(minutes=5)
    """A voter that sees no way to a decision for so long asks the operator for a reset."""
    drain: Duration = timedelta(seconds=60)
    """A node that was told to stop leaves after this even if its last round is undecided."""

    @model_validator(mode="after")
    def _order(self) -> Self:
        for small, large in (
            ("ready_floor", "ready_max"),
            ("attempt", "attempt_max"),
            ("heartbeat", "silence"),
        ):
            if getattr(self, small) > getattr(self, large):
                raise ValueError(f"{small} must not exceed {large}")
        if not all((self.attempt, self.progress, self.heartbeat)):
            raise ValueError("attempt, progress and heartbeat must be longer than zero")
        return self


class AdmissionSection(Section):
    """`[admission]`: who may take part."""

    policy: Literal["open", "invite", "allowlist"] = "open"
    """`open`: anyone contributes; `invite`: whom the operator admitted; `allowlist`: only the peers of `allow`."""
    allow: Annotated[
        tuple[Annotated[str, Field(pattern=PEER_ID_PATTERN)], ...],
        BeforeValidator(_tuple),
        Field(max_length=4096),
    ] = ()
    """Peer ids of the allowlist."""
    seats: Annotated[int, Field(ge=1, le=31)] = 31
    """The coordinator gives a seat to so many of the members it admits, in order of their coming; with `open`
    only to those that come before the run begins: later ones contribute without a vote."""
    versions: Annotated[str, Field(max_length=100)] = ""
    """Versions of the package that may join, such as `>=0.2,<0.4`; empty for all that speak the run's protocol."""

    @field_validator("versions")
    @classmethod
    def _versions_are_a_window(cls, text: str) -> str:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            raise ValueError("write versions such as >=0.2,<0.4") from None
        return text

    @model_validator(mode="after")
    def _allow_fits_policy(self) -> Self:
        if (self.policy == "allowlist") != bool(self.allow):
            raise ValueError('allow belongs to policy = "allowlist": give both or neither')
        return self


class RunSections(Section):
    """All sections that describe a run, the same for every member; a run file adds what is local to a node."""

    run: RunSection = RunSection()
    """Name and length."""
    model: ModelSection = ModelSection()
    """Shape of the model."""
    data: DataSection = DataSection()
    """Corpus."""
    inner: InnerSection = InnerSection()
    """Inner optimizer."""
    outer: OuterSection = OuterSection()
    """Outer optimizer."""
    round: RoundSection = RoundSection()
    """Rounds."""
    deadline: DeadlineSection = DeadlineSection()
    """Deadlines."""
    admission: AdmissionSection = AdmissionSection()
    """Admission."""
    rl: dict[str, Any] = Field(default_factory=dict)
    """What `rl.section` says of a run of reinforcement learning; empty where the run learns from text."""
    objective: dict[str, Any] = Field(default_factory=dict)
    """What such a run's workers minimise, as `rl.training.settings` has it."""

    @property
    def tokens_per_sample(self) -> int:
        """Most tokens of one sample: a sequence, or the whole group of a task's rollouts."""
        return self.model.context * int(self.rl.get("group_size", 1))

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if self.round.start_members > min(self.round.max_voters, self.admission.seats):
            raise ValueError("round.start_members must not exceed round.max_voters nor admission.seats")
        return self
