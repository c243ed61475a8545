//! The checker of histories: what it accepts, and what it finds.

#![forbid(unsafe_code)]

use interop::history::{Entry, Operation, RowState, Verdict, append, check};

fn entry(sent_ns: u64, answered_ns: u64, operation: Operation) -> Entry {
    Entry { sent_ns, answered_ns: (answered_ns > 0).then_some(answered_ns), operation }
}

fn get(register: Option<u64>) -> Operation {
    Operation::Get(RowState { register, ..RowState::default() })
}

fn increment(response: Option<i64>) -> Operation {
    Operation::Increment(1, response)
}

#[test]
fn responses_in_order_are_linearizable() {
    let history = [
        entry(1, 2, Operation::Put(7)),
        entry(3, 4, get(Some(7))),
        entry(5, 6, Operation::CheckAndPut { expected: Some(7), value: 8, done: true }),
        entry(7, 8, Operation::CheckAndPut { expected: Some(7), value: 9, done: false }),
        entry(9, 10, get(Some(8))),
    ];
    assert_eq!(check(&history), Verdict::Linearizable);
}

#[test]
fn a_stale_read_is_a_violation() {
    let history = [entry(1, 2, Operation::Put(7)), entry(3, 4, Operation::Put(8)), entry(5, 6, get(Some(7)))];
    assert_eq!(check(&history), Verdict::Violation(2));
    // The same responses to overlapping operations are no violation.
    let history = [entry(1, 9, Operation::Put(7)), entry(3, 4, Operation::Put(8)), entry(5, 6, get(Some(7)))];
    assert_eq!(check(&history), Verdict::Linearizable);
}

#[test]
fn a_seen_value_that_disappears_is_a_violation() {
    let history = [
        entry(1, 0, Operation::Put(7)),
        entry(2, 3, get(None)),
        entry(4, 5, get(Some(7))),
        entry(6, 7, get(None)),
    ];
    assert_eq!(check(&history), Verdict::Violation(3));
    assert_eq!(check(&history[..3]), Verdict::Linearizable, "without a response it may come late");
    assert_eq!(check(&history[..2]), Verdict::Linearizable, "or never");
}

#[test]
fn a_lost_and_a_doubled_increment_are_violations() {
    let twice = |second| [entry(1, 2, increment(Some(1))), entry(3, 4, increment(Some(second)))];
    assert_eq!(check(&twice(2)), Verdict::Linearizable);
    assert_eq!(check(&twice(1)), Verdict::Violation(1));
    assert_eq!(check(&twice(3)), Verdict::Violation(1));
    let unknown = [entry(1, 0, increment(None)), entry(3, 4, increment(Some(2)))];
    assert_eq!(check(&unknown), Verdict::Linearizable, "the first may have been made");
}

#[test]
fn an_increment_that_is_answered_without_its_sum_was_made_once() {
    let then = |sum| [entry(1, 2, increment(None)), entry(3, 4, increment(Some(sum)))];
    assert_eq!(check(&then(2)), Verdict::Linearizable);
    assert_eq!(check(&then(1)), Verdict::Violation(1), "it is lost");
    assert_eq!(check(&then(3)), Verdict::Violation(1), "it was made twice");
}

#[test]
fn appends_apply_once_in_some_order() {
    let (a, b) = (append((0, 0), b"a"), append((0, 0), b"b"));
    let ab = append(a, b"b");
    let history = [
        entry(1, 9, Operation::Append(b"a".to_vec(), a)),
        entry(2, 8, Operation::Append(b"b".to_vec(), ab)),
        entry(10, 11, Operation::Get(RowState { list: ab, ..RowState::default() })),
    ];
    assert_eq!(check(&history), Verdict::Linearizable);
    let lost =
        [entry(1, 9, Operation::Append(b"a".to_vec(), a)), entry(2, 8, Operation::Append(b"b".to_vec(), b))];
    assert!(matches!(check(&lost), Verdict::Violation(_)));
}

#[test]
fn operations_without_a_response_are_tried_in_every_order() {
    let mut history: Vec<_> = (0..8).map(|i| entry(i + 1, 0, Operation::Put(i))).collect();
    history.push(entry(20, 21, get(Some(3))));
    history.push(entry(22, 23, get(Some(5))));
    assert_eq!(check(&history), Verdict::Linearizable);
    history.push(entry(24, 25, get(Some(3))));
    assert_eq!(check(&history), Verdict::Violation(10), "3 cannot come twice");
}
