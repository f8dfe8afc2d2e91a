"""Verdicts: who is asked, what decides, what it costs a worker, and what a worker may say against it."""

from dataclasses import replace

from protocol.units import Digest, PeerId
from rl.orchestration.events import (
    Appealed,
    AskVerdict,
    Ban,
    Delete,
    Dispute,
    Distrust,
    Effect,
    Judged,
    Lift,
    Report,
    Validators,
)
from rl.orchestration.rows import EVIDENCE, File, Judge, Opinion
from rl.orchestration.state import State, Step, fail
from rl.validation.draw import assigned

_DECIDES = 3  # opinions that decide where two disagree


def on_validators(state: State, event: Validators, now: float) -> Step:
    """Note who is there; what was asked of others is asked anew."""
    asked = {key: until for key, until in state.asked.items() if key[1] in event.present}
    return replace(state, validators=event.present, asked=asked), []


def on_judged(state: State, event: Judged, now: float) -> Step:
    """Take a verdict, once from each validator; also a late one, while nothing is decided."""
    file = state.kept.files.get(event.digest.hex())
    validator = event.opinion.validator
    asked = {key: until for key, until in state.asked.items() if key != (event.digest.hex(), validator)}
    state = replace(state, asked=asked)
    if file is None or file.state not in ("waiting", "appealed") or _has_failed(state, validator):
        return state, []
    if any(opinion.validator == validator for opinion in file.opinions):
        return state, []
    if file.planted:
        return _tested(state, file, event.opinion)
    file = replace(file, opinions=(*file.opinions, event.opinion))
    state = state.with_row(file)
    if event.opinion.doubt:
        state = state.with_row(replace(state.record(file.worker), doubted=state.rules.doubted))
    if event.opinion.undecided and ("file", file.key) not in state.timers:
        state = state.with_timer("file", file.key, now, state.rules.appeal_within)
    return decide(state, file, now)


def on_appealed(state: State, event: Appealed, now: float) -> Step:
    """Have a refused file judged by another validator; once."""
    file = state.kept.files.get(event.digest.hex())
    if file is None or file.worker != event.worker or file.state != "refused" or file.heard:
        return state, []
    if not file.opinions:  # it was refused for what anybody can see
        return state, []
    file = replace(file, state="appealed", heard=True, wanted=len(_decided(file)) + 1)
    return state.with_row(file).with_timer("file", file.key, now, state.rules.appeal_within), []


def decide(state: State, file: File, now: float) -> Step:
    """Act on the opinions about a file as far as they decide."""
    decided = _decided(file)
    accepting = tuple(each.validator for each in decided if each.accepted)
    refusing = tuple(each.validator for each in decided if not each.accepted)
    effects: list[Effect] = []
    if len(decided) < file.wanted:
        return state, []
    if len(accepting) == len(refusing) or (accepting and refusing and len(decided) < _DECIDES):
        effects.append(Dispute(file.digest, accepting, refusing))
        wanted = replace(file, wanted=len(decided) + 1)
        return state.with_row(wanted).with_timer("file", file.key, now, state.rules.appeal_within), effects
    good = len(accepting) > len(refusing)
    for each in decided:
        judge = state.kept.judges.get(each.validator) or Judge(each.validator)
        right = each.accepted == good
        state = state.with_row(
            replace(judge, judged=judge.judged + right, overruled=judge.overruled + (not right))
        )
    state, more = _accept(state, file) if good else refuse(state, file, now)
    return state, effects + more


def _decided(file: File) -> list[Opinion]:
    return [opinion for opinion in file.opinions if not opinion.undecided]


def overdue(state: State, now: float) -> Step:
    """What time alone ends: the time of validators, of appeals, of looking for another opinion."""
    late = {key for key, until in state.asked.items() if until <= now}
    silent = dict(state.silent)
    for key in late:
        silent[key] = silent.get(key, 0) + 1
    asked = {key: until for key, until in state.asked.items() if key not in late}
    state = replace(state, asked=asked, silent=silent)
    effects: list[Effect] = []
    ended = sorted(key for kind, key in state.timers if kind == "file" and state.timers[(kind, key)] <= now)
    for digest in ended:
        timers = {each: at for each, at in state.timers.items() if each != ("file", digest)}
        state = replace(state, timers=timers)
        file = state.kept.files.get(digest)
        if file is None:
            continue
        if file.state == "refused" or file.planted:  # nobody has appealed, or judged it, in time
            state = state.without(file)
            effects.append(Delete((file.digest,)))
        elif file.state == "appealed" and not any(each.accepted for each in _decided(file)):
            state = state.with_row(replace(file, state="refused"))
        elif file.state in ("waiting", "appealed"):  # opinions differ, and no third one came
            state, more = _disputed(state, file, now)
            effects += more
    return state, effects


def assign(state: State, now: float) -> Step:
    """Ask validators for the opinions that are missing, for what is trained first before what comes later.

    Who is asked is drawn by the file and its link, which nobody knew before the file was fixed; one that let its time
    pass comes last.
    """
    rounds = state.rounds_of()
    places = {position: number for number, position in enumerate(rounds)}
    load: dict[str, int] = {}
    for _, validator in state.asked:
        load[validator] = load.get(validator, 0) + 1
    effects: list[Effect] = []
    asked = dict(state.asked)

    def turn(file: File) -> tuple[int, str]:
        return min((places.get(group.position, len(places)) for group in file.groups), default=0), file.key

    for file in sorted(
        (f for f in state.kept.files.values() if f.state in ("waiting", "appealed")), key=turn
    ):
        running = sum(key == file.key for key, _ in asked)
        missing = file.wanted - len(_decided(file)) - running
        if missing <= 0:
            continue
        given = {*(each.validator for each in file.opinions), *file.apart}
        free = [
            PeerId(name)
            for name in trusted(state)
            if name not in given
            and (file.key, name) not in asked
            and load.get(name, 0) < state.rules.per_validator
        ]
        drawn = assigned(Digest(file.link), Digest(file.digest), free, len(free))
        silent = {name: state.silent.get((file.key, name), 0) for name in drawn}
        order = sorted(drawn, key=silent.__getitem__)
        for name in order[:missing]:
            asked[(file.key, name)] = now + state.rules.verdict_within.total_seconds()
            load[name] = load.get(name, 0) + 1
            effects.append(AskVerdict(name, file.digest, file.standing, file.number, file.link))
    return (replace(state, asked=asked), effects) if effects else (state, [])


def trusted(state: State) -> list[str]:
    """The validators that are there and have accepted nothing that is known to be bad."""
    able = {name for name in state.validators if not _has_failed(state, name)}
    return sorted(able - set(state.value.banned))


def _has_failed(state: State, validator: str) -> bool:
    judge = state.kept.judges.get(validator)
    return judge is not None and judge.failed > 0


def seen_by(state: State, key: str) -> set[str]:
    """The validators that a file was given to, as far as is remembered."""
    file = state.kept.files.get(key)
    given = {opinion.validator for opinion in file.opinions} if file is not None else set()
    return given | {validator for asked, validator in (*state.asked, *state.silent) if asked == key}


def _accept(state: State, file: File) -> Step:
    appealed = file.state == "appealed"
    struck, file = file.struck, replace(file, state="accepted", code="", struck=0)
    state = state.with_row(file)
    record = state.record(file.worker)
    clean, strikes = record.clean + 1, record.strikes - struck
    if strikes > 0 and clean >= state.rules.forgiven_after:
        clean, strikes = 0, strikes - 1
    found = f"All {len(file.groups)} groups were accepted."
    effects: list[Effect] = [Report(file.worker, file.digest, True, "accepted", found)]
    lifted = record.banned and file.digest in record.evidence and strikes < state.rules.strikes
    if lifted:
        effects.append(
            Lift(file.worker, "Other validators found nothing wrong with the file it was banned for.")
        )
    record = replace(
        record,
        accepted=record.accepted + len(file.groups),
        refused=record.refused - appealed,
        clean=clean,
        doubted=max(0, record.doubted - 1),
        strikes=max(0, strikes),
        banned="" if lifted else record.banned,
        evidence=tuple(each for each in record.evidence if each != file.digest),
    )
    state = state.with_row(record)
    if record.banned:
        return state.with_row(replace(file, state="refused", code="banned", heard=True)), effects
    return state, effects


def refuse(state: State, file: File, now: float) -> Step:
    """Refuse a file for good, or until an appeal; its positions are for others."""
    worst = max((each for each in _decided(file) if not each.accepted), key=lambda each: each.strikes)
    again = file.struck
    file = replace(file, state="refused", code=worst.code, struck=max(worst.strikes, again))
    sentence = f"{worst.code}: {worst.sentence}"
    state = state.with_row(file).with_timer("file", file.key, now, state.rules.appeal_within)
    effects: list[Effect] = [Report(file.worker, file.digest, False, worst.code, worst.sentence)]
    if not file.heard:
        record = state.record(file.worker)
        state = state.with_row(replace(record, refused=record.refused + 1))
        for group in file.groups:
            state = fail(state, group.position, file.worker)
    state, more = strike(state, file.worker, file.struck - again, sentence, (file.digest,))
    return state, effects + more


def strike(state: State, worker: str, strikes: int, sentence: str, evidence: tuple[bytes, ...]) -> Step:
    """Count strikes against a worker; from the last one on it is banned and nothing of it is trained on."""
    record = state.record(worker)
    if strikes <= 0:
        return state, []
    total = record.strikes + strikes
    record = replace(record, strikes=total, clean=0, evidence=(*record.evidence, *evidence)[-EVIDENCE:])
    state = state.with_row(record)
    if total < state.rules.strikes or record.banned:
        return state, []
    if strikes >= state.rules.strikes:
        why = f"Banned for this: {sentence}"
    else:
        why = f"Banned after {total} strikes, the last one for this: {sentence}"
    return ban(state, worker, why), [Ban(worker, why, record.evidence)]


def ban(state: State, worker: str, why: str) -> State:
    """Ban a worker: its leases are over, and what it sent and is not consumed is not trained on."""
    state = state.with_row(replace(state.record(worker), banned=why))
    for work in state.works_of(worker):
        timers = {key: at for key, at in state.timers.items() if key != ("work", work.key)}
        state = replace(state.without(work), timers=timers)
    for file in list(state.kept.files.values()):
        if file.worker == worker and file.state in ("waiting", "accepted") and not file.planted:
            state = state.with_row(replace(file, state="refused", code="banned", heard=True))
    return state


def _disputed(state: State, file: File, now: float) -> Step:
    """No majority could be had: the file is not trained on, and its worker is not blamed."""
    record = state.record(file.worker)
    evidence = tuple(each for each in record.evidence if each != file.digest)
    strikes = max(0, record.strikes - file.struck)
    lifted = record.banned and file.digest in record.evidence and strikes < state.rules.strikes
    banned = "" if lifted else record.banned
    state = state.with_row(replace(record, strikes=strikes, evidence=evidence, banned=banned))
    if file.state == "waiting":
        for group in file.groups:
            state = fail(state, group.position, file.worker)
    file = replace(file, state="refused", code="disputed", struck=0, heard=True)
    sentence = (
        f"{len(file.opinions)} validators did not agree, and no other one could be asked; nobody is blamed."
    )
    effects: list[Effect] = [Report(file.worker, file.digest, False, "disputed", sentence)]
    if lifted:
        effects.append(Lift(file.worker, sentence))
    state = state.with_row(file).with_timer("file", file.key, now, state.rules.appeal_within)
    return state, effects


def _tested(state: State, file: File, opinion: Opinion) -> Step:
    """A verdict on a file that is known to be bad."""
    judge = state.kept.judges.get(opinion.validator) or Judge(opinion.validator)
    timers = {key: at for key, at in state.timers.items() if key != ("file", file.key)}
    state = replace(state.without(file), timers=timers)
    effects: list[Effect] = [Delete((file.digest,))]
    if opinion.undecided:
        return state, effects
    if not opinion.accepted:
        return state.with_row(replace(judge, judged=judge.judged + 1)), effects
    state = state.with_row(replace(judge, failed=judge.failed + 1))
    asked = {key: until for key, until in state.asked.items() if key[1] != opinion.validator}
    state = replace(state, asked=asked)
    for each in list(
        state.kept.files.values()
    ):  # what it alone has accepted and is not consumed is judged again
        others = tuple(o for o in each.opinions if o.validator != opinion.validator)
        if each.state == "accepted" and not each.planted and not any(o.accepted for o in others):
            state = state.with_row(replace(each, state="waiting", opinions=others, wanted=len(others) + 1))
    return state, [Distrust(opinion.validator, file.digest), *effects]
