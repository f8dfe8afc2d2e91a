"""The one error hierarchy: a stable code, a sentence, a fix.

A code is shared by both ends of a connection, printed by the command line and is an anchor in
``docs/troubleshooting.md`` (a test holds both lists equal). A code never changes its meaning and is never reused.
"""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Stable error codes, grouped by area."""

    # configuration: run file, genesis, command line
    CFG_UNREADABLE = "E-CFG-001"
    CFG_UNKNOWN_KEY = "E-CFG-002"
    CFG_BAD_VALUE = "E-CFG-003"
    CFG_GENESIS_MISMATCH = "E-CFG-004"
    CFG_GENESIS_INVALID = "E-CFG-005"
    CFG_USAGE = "E-CFG-006"
    CFG_RUN_EXISTS = "E-CFG-007"
    CFG_EXTENSION = "E-CFG-008"
    # identity and keys
    ID_PERMISSIONS = "E-ID-001"
    ID_UNREADABLE = "E-ID-002"
    ID_BAD_PEER = "E-ID-003"
    ID_CLONED = "E-ID-004"
    # network: connections and calls
    NET_PORT_IN_USE = "E-NET-001"
    NET_UNREACHABLE = "E-NET-002"
    NET_TIMEOUT = "E-NET-003"
    NET_UNTRUSTED = "E-NET-004"
    NET_RATE = "E-NET-005"
    NET_UNKNOWN_MESSAGE = "E-NET-006"
    NET_AUDIENCE = "E-NET-007"
    NET_INTERNAL = "E-NET-008"
    NET_VERSION = "E-NET-009"
    NET_BUSY = "E-NET-010"
    # wire: declaration, encoding, envelope
    WIRE_DECLARATION = "E-WIRE-001"
    WIRE_TOO_LARGE = "E-WIRE-002"
    WIRE_MALFORMED = "E-WIRE-003"
    WIRE_INVALID = "E-WIRE-004"
    WIRE_SIGNATURE = "E-WIRE-005"
    WIRE_WRONG_RUN = "E-WIRE-006"
    WIRE_WRONG_RECIPIENT = "E-WIRE-007"
    WIRE_WRONG_MESSAGE = "E-WIRE-008"
    WIRE_REPLAY = "E-WIRE-009"
    WIRE_DOMAIN = "E-WIRE-010"
    WIRE_BREAKING = "E-WIRE-011"
    WIRE_OLD_BOOT = "E-WIRE-012"
    # directory
    DIR_START = "E-DIR-001"
    DIR_BOOTSTRAP = "E-DIR-002"
    DIR_DIED = "E-DIR-003"
    DIR_RECORD = "E-DIR-004"
    # rounds, admission
    RND_NOT_ADMITTED = "E-RND-001"
    RND_CHAIN = "E-RND-002"
    RND_CERTIFICATE = "E-RND-003"
    RND_DIVERGED = "E-RND-004"
    RND_CHUNK = "E-RND-005"
    RND_BANNED = "E-RND-006"
    RND_EVIDENCE = "E-RND-007"
    RND_FORKED = "E-RND-008"
    # training: worker, data, model
    TRN_NOT_FINITE = "E-TRN-001"
    TRN_WORKER_DIED = "E-TRN-002"
    TRN_DATA = "E-TRN-003"
    TRN_GOLDEN = "E-TRN-004"
    TRN_CODEC = "E-TRN-005"
    TRN_MODEL = "E-TRN-006"
    TRN_WORKER_STOPPED = "E-TRN-007"
    # storage
    STO_LOCKED = "E-STO-001"
    STO_UNWRITABLE = "E-STO-002"
    STO_CORRUPT = "E-STO-003"
    STO_FULL = "E-STO-004"
    STO_SCHEMA = "E-STO-005"
    # shardcast
    SHC_NAME = "E-SHC-001"
    SHC_NO_HOLDER = "E-SHC-002"
    SHC_BAD_SHARD = "E-SHC-003"
    SHC_MANIFEST = "E-SHC-004"
    SHC_BUSY = "E-SHC-005"
    SHC_MISSING = "E-SHC-006"
    SHC_ACCESS = "E-SHC-007"
    SHC_ENCODING = "E-SHC-020"
    SHC_TENSORS = "E-SHC-021"
    # reinforcement learning
    RL_FILE_UNREADABLE = "E-RL-001"
    RL_FILE_TOO_LARGE = "E-RL-002"
    RL_FILE_SIGNATURE = "E-RL-003"
    RL_NO_WORK = "E-RL-004"
    RL_LEASE = "E-RL-005"
    RL_ENVIRONMENT = "E-RL-010"
    RL_ENVIRONMENT_FAILED = "E-RL-011"
    RL_TRANSCRIPT = "E-RL-012"
    RL_SANDBOX = "E-RL-013"
    RL_REQUEST = "E-RL-020"
    RL_BUSY = "E-RL-021"
    RL_GONE = "E-RL-022"
    RL_WEIGHTS = "E-RL-023"
    RL_ENGINE = "E-RL-024"
    RL_BATCH = "E-RL-040"
    RL_POLICY = "E-RL-041"
    RL_BANNED = "E-RL-060"
    RL_DRAW = "E-RL-061"
    RL_PROVENANCE = "E-RL-070"
    RL_WINDOW = "E-RL-071"
    RL_GROUP = "E-RL-072"
    RL_TOKENS = "E-RL-073"
    RL_LENGTH = "E-RL-074"
    RL_TERMINATION = "E-RL-075"
    RL_LOGPROBS = "E-RL-076"
    RL_PROOF_FORM = "E-RL-077"
    RL_COPY = "E-RL-078"
    RL_REWARD = "E-RL-079"
    RL_IMPLAUSIBLE = "E-RL-080"
    RL_PROOF = "E-RL-081"
    RL_OTHER_LOGPROBS = "E-RL-082"
    RL_OTHER_TOKENS = "E-RL-083"
    RL_UNJUDGED = "E-RL-084"
    # the machine
    SYS_MEMORY = "E-SYS-001"
    SYS_DISK = "E-SYS-002"
    SYS_VERSION = "E-SYS-003"
    SYS_NOT_RUNNING = "E-SYS-004"
    SYS_CLOCK = "E-SYS-005"
    SYS_FILES = "E-SYS-006"
    SYS_DEVICE = "E-SYS-007"


@dataclass(frozen=True)
class Entry:
    """What is known of a code without its occasion.

    Attributes:
        retriable: Whether the same call may succeed later without anyone changing anything.
        title: A few words, the heading in the troubleshooting page.
        fix: What a person does about it, when the occasion has nothing more precise.
    """

    retriable: bool
    title: str
    fix: str


CATALOGUE: dict[Code, Entry] = {
    Code.CFG_UNREADABLE: Entry(
        False, "A file cannot be read", "Check that the file exists, is readable and is valid TOML."
    ),
    Code.CFG_UNKNOWN_KEY: Entry(False, "Unknown key in the run file", "Remove the key or correct its name."),
    Code.CFG_BAD_VALUE: Entry(
        False, "A value in the run file is not allowed", "Use one of the values that the message names."
    ),
    Code.CFG_GENESIS_MISMATCH: Entry(
        False,
        "The run file does not match the run",
        "Use the run file that the run was made from, or another --dir.",
    ),
    Code.CFG_RUN_EXISTS: Entry(
        False,
        "The data directory already holds a run",
        "Go on with it by `intellect-node run`, or use another --dir.",
    ),
    Code.CFG_GENESIS_INVALID: Entry(
        False,
        "The genesis is not valid",
        "Fetch it again from a peer of the run, or make a new run with `intellect-node init`.",
    ),
    Code.CFG_USAGE: Entry(
        False,
        "The command line is not understood",
        "Run `intellect-node --help`, or the command with --help.",
    ),
    Code.CFG_EXTENSION: Entry(
        False,
        "An extension cannot be loaded",
        "Correct or uninstall the package that the message names; `intellect-node messages list` shows what loads.",
    ),
    Code.ID_PERMISSIONS: Entry(
        False, "Others can read a key file", "Run `chmod 600` on the file that the message names."
    ),
    Code.ID_UNREADABLE: Entry(
        False,
        "A key file cannot be read",
        "Restore the key file from a copy, or move it away to get a new identity.",
    ),
    Code.ID_BAD_PEER: Entry(False, "Not an Ed25519 peer id", "Use a peer id that begins with 12D3KooW."),
    Code.ID_CLONED: Entry(
        False,
        "Two running nodes share one identity",
        "Stop one of them; copy a data directory only when its node is stopped for good.",
    ),
    Code.NET_PORT_IN_USE: Entry(
        False,
        "The port is taken",
        "Choose another port in the run file's [network] section, or port 0 for any free one.",
    ),
    Code.NET_UNREACHABLE: Entry(
        True, "A peer cannot be reached", "Check the peer's address and that its port is open."
    ),
    Code.NET_TIMEOUT: Entry(
        True, "A peer did not answer in time", "Nothing, if it happens once; else look at the peer's own log."
    ),
    Code.NET_UNTRUSTED: Entry(
        True, "A peer's certificate is not known", "Wait until the directory has spread the peer's record."
    ),
    Code.NET_RATE: Entry(
        True, "Too many calls", "Send more slowly; the message's declared rate says how fast."
    ),
    Code.NET_UNKNOWN_MESSAGE: Entry(
        False, "The peer does not know this message", "Install the same extensions on both nodes."
    ),
    Code.NET_AUDIENCE: Entry(
        False,
        "The caller may not send this message",
        "Ask the operator for an admission with the needed role.",
    ),
    Code.NET_INTERNAL: Entry(
        False, "The peer failed while answering", "Look at the peer's own log for the same moment."
    ),
    Code.NET_VERSION: Entry(
        False, "The peer speaks another protocol version", "Install the version that the message names."
    ),
    Code.NET_BUSY: Entry(
        True, "The peer serves as many calls as it can", "Nothing: ask again a little later."
    ),
    Code.WIRE_DECLARATION: Entry(
        False, "A message is declared wrongly", "Correct the declaration as the sentence says."
    ),
    Code.WIRE_TOO_LARGE: Entry(
        False,
        "A message is larger than it may be",
        "Send less, or declare a larger max_bytes in a new version.",
    ),
    Code.WIRE_MALFORMED: Entry(False, "Bytes are not the message they should be", "Update the sending node."),
    Code.WIRE_INVALID: Entry(
        False, "A field has a value that is not allowed", "Correct the value that the sentence names."
    ),
    Code.WIRE_SIGNATURE: Entry(
        False, "A signature does not verify", "Nothing: the message was changed on its way, or forged."
    ),
    Code.WIRE_WRONG_RUN: Entry(
        False, "A message of another run", "Check that both nodes have the same run id."
    ),
    Code.WIRE_WRONG_RECIPIENT: Entry(
        False, "A message for someone else", "Nothing: it was delivered to the wrong node."
    ),
    Code.WIRE_WRONG_MESSAGE: Entry(
        False, "A different message than was expected", "Update the sending node."
    ),
    Code.WIRE_REPLAY: Entry(False, "A message that was seen before", "Nothing: it is ignored."),
    Code.WIRE_DOMAIN: Entry(
        False, "A signature made for another purpose", "Nothing: the message is refused."
    ),
    Code.WIRE_BREAKING: Entry(
        False,
        "A message changed in a way that older nodes cannot read",
        "Take the change back: add a field with a number of its own instead, and name removed numbers as reserved.",
    ),
    Code.WIRE_OLD_BOOT: Entry(
        False,
        "A message from before a restart of its sender",
        "Nothing: it is ignored; if it repeats, two nodes run with one identity.",
    ),
    Code.DIR_START: Entry(
        True,
        "The directory did not start",
        "Read the helper's own words below the message; check free memory and open files.",
    ),
    Code.DIR_BOOTSTRAP: Entry(
        True, "No bootstrap peer answers", "Check the --join address, or give one of another live peer."
    ),
    Code.DIR_DIED: Entry(True, "The directory process ended", "Nothing: the node starts it again."),
    Code.DIR_RECORD: Entry(False, "A directory record is not valid", "Update the node that published it."),
    Code.RND_NOT_ADMITTED: Entry(
        True,
        "The node is not admitted to the run",
        "Ask the run's operator, or wait until a coordinator is reachable.",
    ),
    Code.RND_CHAIN: Entry(
        False, "A chain of values does not fit", "Nothing: the peer that offered it is not believed."
    ),
    Code.RND_CERTIFICATE: Entry(
        False, "A certificate does not hold", "Nothing: the peer that offered it is not believed."
    ),
    Code.RND_DIVERGED: Entry(
        False,
        "This node's state differs from the quorum's",
        "Nothing: the node fetches what differs; if it happens again, test its memory.",
    ),
    Code.RND_CHUNK: Entry(
        False,
        "A chunk is not what its sender committed to",
        "Nothing: the chunk is refused and the round goes on without it.",
    ),
    Code.RND_BANNED: Entry(
        False,
        "The node is banned from the run",
        "Ask the run's operator, who can lift the ban: intellect-node admin unban PEER.",
    ),
    Code.RND_EVIDENCE: Entry(
        False,
        "What a member shows of its work, or against another member, proves nothing",
        "Nothing: nobody is believed without proof, and who cannot show what it averaged owns no chunks for some rounds.",
    ),
    Code.RND_FORKED: Entry(
        False,
        "The chain of decided rounds has forked",
        "The run's operator has to end it by a reset: intellect-node admin reset. Both sides are kept as proof of who lied.",
    ),
    Code.TRN_NOT_FINITE: Entry(
        True,
        "Training produced NaN or infinity",
        "Nothing: the node contributes nothing to this round and starts the next from the shared state; lower the learning rate if it repeats.",
    ),
    Code.TRN_WORKER_DIED: Entry(
        True,
        "A worker process ended",
        "Nothing: it is started again; if it repeats, look at the worker's log for lack of memory.",
    ),
    Code.TRN_DATA: Entry(
        False,
        "Training data is not what the genesis says",
        "Use the data that the run was made from, or let the node fetch it from members.",
    ),
    Code.TRN_GOLDEN: Entry(
        False,
        "This machine computes other bits",
        "Report the processor and library versions that the message names; this machine cannot take part.",
    ),
    Code.TRN_CODEC: Entry(False, "Encoded values are not valid", "Nothing: the chunk is refused."),
    Code.TRN_MODEL: Entry(
        False, "The model cannot be built", "Correct the [model] section as the sentence says."
    ),
    Code.TRN_WORKER_STOPPED: Entry(
        True,
        "A worker process is stopped",
        "Let it go on with `kill -CONT` and its process id; until then the node votes and contributes nothing.",
    ),
    Code.STO_LOCKED: Entry(
        False, "The data directory is in use", "Stop the other node, or use another --dir."
    ),
    Code.STO_UNWRITABLE: Entry(
        False,
        "A directory cannot be written",
        "Give the user that runs the node the right to write there, or use another --dir.",
    ),
    Code.STO_CORRUPT: Entry(
        False,
        "A stored file is damaged",
        "Nothing, if an older copy is found; else remove the file that the message names, and it is fetched again.",
    ),
    Code.STO_FULL: Entry(True, "The disk is full", "Free some space; the node goes on by itself."),
    Code.STO_SCHEMA: Entry(
        False,
        "A stored file was written by another version",
        "Use the version that the message names, or another --dir.",
    ),
    Code.SHC_NAME: Entry(
        False, "Not a valid object name", "Use lower-case letters, digits, dots, dashes and slashes."
    ),
    Code.SHC_NO_HOLDER: Entry(
        True, "Nobody can give an object", "Wait until a peer that holds it is reachable."
    ),
    Code.SHC_BAD_SHARD: Entry(True, "A shard has wrong bytes", "Nothing: it is fetched from another holder."),
    Code.SHC_MANIFEST: Entry(
        False, "A manifest is not valid", "Nothing: the peer that offered it is not believed."
    ),
    Code.SHC_BUSY: Entry(True, "A holder serves as many as it can", "Nothing: the fetch comes back to it."),
    Code.SHC_MISSING: Entry(
        False, "The peer does not hold an object", "Nothing: it is fetched from another holder."
    ),
    Code.SHC_ACCESS: Entry(
        False,
        "A server does not let this client in",
        "Ask who runs the server for a token, and give it with --token.",
    ),
    Code.SHC_ENCODING: Entry(
        False, "An encoded object cannot be decoded", "Nothing: another form of the version is fetched."
    ),
    Code.SHC_TENSORS: Entry(
        False,
        "A safetensors file has an index that is wrong",
        "Write the file again with the safetensors library, or take it from elsewhere.",
    ),
    Code.RL_ENVIRONMENT: Entry(
        False,
        "An environment cannot be used",
        "Install or correct the package, or the settings, that the message names.",
    ),
    Code.RL_ENVIRONMENT_FAILED: Entry(
        True,
        "An environment failed on a task",
        "Nothing, if it happens once: the work is given up and leased again. Else correct the environment.",
    ),
    Code.RL_TRANSCRIPT: Entry(
        False,
        "A transcript is not what the environment said",
        "Update the worker: its environment, its tokenizer or its template is not that of the run.",
    ),
    Code.RL_REQUEST: Entry(
        False, "The engine cannot serve a request", "Ask for what the message says is possible."
    ),
    Code.RL_BUSY: Entry(
        True,
        "The engine has no place for another request",
        "Ask again later, or start the engine with more places.",
    ),
    Code.RL_GONE: Entry(
        False,
        "A conversation's weights are gone",
        "Nothing: the rollout is abandoned and its work is leased again.",
    ),
    Code.RL_WEIGHTS: Entry(
        True,
        "The engine cannot take weights",
        "Fetch the version again; the engine goes on with what it has.",
    ),
    Code.RL_ENGINE: Entry(
        True, "The engine does not answer", "Look at its log: whoever started it starts it again."
    ),
    Code.RL_BATCH: Entry(
        False,
        "A batch of rollouts cannot be trained on",
        "Nothing: the batch is left out; if it repeats, report what the sentence says, since accepted rollouts should fit.",
    ),
    Code.RL_POLICY: Entry(
        False,
        "The weights of a policy version are not at hand",
        "Nothing: the batch is left out; if it repeats, look for a full disk, as weights of the last versions are kept there.",
    ),
    Code.RL_FILE_UNREADABLE: Entry(
        False,
        "A rollout file cannot be read",
        "Write it with this version's `rl.rollouts.files`, and send all of it.",
    ),
    Code.RL_FILE_TOO_LARGE: Entry(
        False,
        "A rollout file holds more than it may",
        "Answer one lease with one file, and stop each rollout at max_tokens.",
    ),
    Code.RL_FILE_SIGNATURE: Entry(
        False,
        "A rollout file is not signed by its worker",
        "Send the file as it was written, with the signature beside it.",
    ),
    Code.RL_NO_WORK: Entry(False, "A worker gets no work", "Ask the operator; the message names the reason."),
    Code.RL_LEASE: Entry(
        False,
        "A file answers no lease",
        "Answer or abandon leases in the order in which they were given, each once.",
    ),
    Code.RL_BANNED: Entry(
        False,
        "A worker makes no more rollouts",
        "Read the reason; appeal to the run's operator if it is wrong, with the files that it names.",
    ),
    Code.RL_DRAW: Entry(
        False,
        "A trainer draws audits by another chain than it committed to",
        "Tell the run's operator: the trainer chose which files are audited.",
    ),
    Code.RL_PROVENANCE: Entry(
        False,
        "Rollouts are not of this run as it is now",
        "Use the run's environment, tokenizer and sampling, and the weights that were published.",
    ),
    Code.RL_WINDOW: Entry(
        False,
        "Rollouts are of a policy version outside the window",
        "Fetch the newest version before asking for work.",
    ),
    Code.RL_GROUP: Entry(
        False,
        "Groups are not those of the lease",
        "Hand in every rollout of every position of the lease, in order.",
    ),
    Code.RL_TOKENS: Entry(
        False,
        "Tokens are outside of the vocabulary or wrongly marked",
        "Use the run's tokenizer, and mark what was sampled.",
    ),
    Code.RL_LENGTH: Entry(
        False, "A rollout is empty or too long", "Sample at least one token and at most max_tokens."
    ),
    Code.RL_TERMINATION: Entry(
        False,
        "A rollout does not end as it says",
        "Sample until an end-of-sequence token, a stop string, max_tokens or the environment's last word.",
    ),
    Code.RL_LOGPROBS: Entry(
        False,
        "Log-probabilities are impossible",
        "Report the log-probability of each sampled token under the distribution it was drawn from; look for NaN in the model.",
    ),
    Code.RL_PROOF_FORM: Entry(
        False,
        "Proofs do not have the form that they must have",
        "Send one proof for each begun 32 predicted tokens, as package toploc builds them.",
    ),
    Code.RL_COPY: Entry(
        False, "Rollouts or proofs are copies", "Generate each rollout from the lease's own seeds."
    ),
    Code.RL_REWARD: Entry(
        False, "A reward is not what the environment gives", "Use the run's version of the environment."
    ),
    Code.RL_IMPLAUSIBLE: Entry(
        False,
        "Tokens cannot have been drawn with the noise of their seed",
        "Draw with the seed of the lease, once, and report what was drawn.",
    ),
    Code.RL_PROOF: Entry(
        False,
        "Proofs do not fit the policy version",
        "Load the weights whose digest the version has, in a precision that the run allows.",
    ),
    Code.RL_OTHER_LOGPROBS: Entry(
        False,
        "Log-probabilities are not those of the policy version",
        "Load the weights whose digest the version has, and report the sampled distribution's values.",
    ),
    Code.RL_OTHER_TOKENS: Entry(
        False,
        "Tokens are not those that the seed gives",
        "Draw with the seed of the lease, and change nothing afterwards.",
    ),
    Code.RL_UNJUDGED: Entry(
        True, "A validator could not judge a file", "Nothing: another validator is asked."
    ),
    Code.RL_SANDBOX: Entry(
        False,
        "Generated code cannot be run safely on this machine",
        "Run the node as root, allow user namespaces (`sysctl user.max_user_namespaces`), or use Linux 6.7 or newer.",
    ),
    Code.SYS_MEMORY: Entry(False, "Not enough memory", "Use fewer nodes or a smaller model, or free memory."),
    Code.SYS_DISK: Entry(False, "Not enough disk space", "Free space, or use a --dir on another disk."),
    Code.SYS_VERSION: Entry(
        False,
        "A needed library has another version",
        "Run `make setup`, or install the versions of the constraints file.",
    ),
    Code.SYS_NOT_RUNNING: Entry(
        False, "No node runs there", "Start it with `intellect-node run`, or name its directory with --dir."
    ),
    Code.SYS_CLOCK: Entry(
        False,
        "The clock is wrong",
        "Set the machine's clock, best by a time service such as chrony or systemd-timesyncd.",
    ),
    Code.SYS_FILES: Entry(
        False, "Too few open files are allowed", "Raise the limit, for example with `ulimit -n 4096`."
    ),
    Code.SYS_DEVICE: Entry(
        False,
        "The accelerator cannot be used",
        'Set node.device to "cpu", or install the GPU\'s driver and a torch that supports it.',
    ),
}


class NodeError(Exception):
    """An error a person or a peer can act on.

    Args:
        code: The stable code.
        sentence: What happened, in one sentence with names and numbers.
        fix: What to do about it here; the catalogue's words by default.
        peer: The peer that it is about, if any.
        message: Name of the message that it is about, if any.
        retriable: Whether trying again may help; what the catalogue says by default. Only a peer whose code this
            node does not know says otherwise.
    """

    def __init__(
        self,
        code: Code,
        sentence: str,
        *,
        fix: str | None = None,
        peer: str | None = None,
        message: str | None = None,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.fix = fix if fix is not None else CATALOGUE[code].fix
        self.peer = peer
        self.message = message
        self._retriable = retriable

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later without anyone changing anything."""
        return CATALOGUE[self.code].retriable if self._retriable is None else self._retriable

    def __str__(self) -> str:
        """Code, sentence and fix on one line."""
        return f"{self.code}: {self.sentence} {self.fix}".rstrip()
