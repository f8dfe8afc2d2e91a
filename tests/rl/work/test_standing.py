from rl.work.standing import Merits, Record, Standing, after_clean_audit, after_doubt, after_fault

MERITS = Merits(to_establish=3, to_clear=5)


def audited(record: Record, times: int) -> Record:
    for _ in range(times):
        record = after_clean_audit(record, MERITS)
    return record


def test_a_new_worker_is_established_after_the_audits_that_the_rules_ask_for_and_not_before() -> None:
    assert audited(Record(), 2).standing is Standing.NEW
    assert audited(Record(), 3).standing is Standing.ESTABLISHED


def test_a_doubt_makes_suspicious_and_clean_audits_clear_it() -> None:
    record = after_doubt(audited(Record(), 10), "Its rewards are unusual.")
    assert (record.standing, record.reason) == (Standing.SUSPICIOUS, "Its rewards are unusual.")
    assert audited(record, 4).standing is Standing.SUSPICIOUS
    assert audited(record, 5) == Record(Standing.ESTABLISHED)


def test_a_new_doubt_begins_the_count_again() -> None:
    record = after_doubt(audited(after_doubt(Record(), "One."), 4), "Two.")
    assert audited(record, 4).standing is Standing.SUSPICIOUS


def test_nothing_brings_back_who_is_banned() -> None:
    record = after_fault("Its proofs are of other weights.")
    assert audited(record, 100) == record
    assert after_doubt(record, "It was unusual, too.") == record
