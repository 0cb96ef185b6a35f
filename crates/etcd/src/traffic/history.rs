//! Whether what many clients saw of the same keys fits one order of events: linearizability.
//!
//! Etcd numbers its states, so the order need not be searched for: it is the order of revisions. It remains to prove that
//! it respects time, that every read and every comparison saw just the write before it, and that no write shows twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// What a client asked for. Values are never used twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Put(String),
    /// The value and the revision of its write, if there was one.
    Get(Option<(String, i64)>),
    /// Write over what was written at `seen` (0: nothing was), if it is still there.
    Swap {
        value: String,
        seen: i64,
        won: bool,
    },
}

/// One request, since the clients began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub key: String,
    pub deed: Deed,
    pub began: Duration,
    /// When the answer came, and the store's revision in it; none came if it may still happen, or never.
    pub answer: Option<(Duration, i64)>,
}

/// A write as a watch or an answer shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub key: String,
    pub value: String,
    pub revision: i64,
}

impl Op {
    /// The value that this request writes, if it was not turned down.
    fn writes(&self) -> Option<&String> {
        match &self.deed {
            Deed::Put(value) | Deed::Swap { value, won: true, .. } => Some(value),
            Deed::Swap { value, .. } if self.answer.is_none() => Some(value),
            _ => None,
        }
    }

    /// The write that it shows, made by itself or read.
    pub(super) fn shows(&self) -> Option<Written> {
        let (_, revision) = self.answer?;
        let (value, revision) = match &self.deed {
            Deed::Get(found) => found.clone()?,
            _ => (self.writes()?.clone(), revision),
        };
        Some(Written { key: self.key.clone(), value, revision })
    }
}

/// What is wrong with the history; nothing, if it is linearizable and the watch told all of it once and in order.
pub fn violations(ops: &[Op], watched: &[Written]) -> Vec<String> {
    let mut wrong = Vec::new();
    let order = order(ops, watched, &mut wrong);
    wrong.extend(unasked(ops, &order));
    wrong.extend(against_time(ops, &order));
    wrong.extend(ops.iter().filter_map(|op| misread(op, &order)));
    wrong.extend(gaps(&order, watched));
    wrong
}

type Order = BTreeMap<i64, Written>;

/// All writes that anybody saw, by revision.
fn order(ops: &[Op], watched: &[Written], wrong: &mut Vec<String>) -> Order {
    let mut order = Order::new();
    for shown in ops.iter().filter_map(Op::shows).chain(watched.iter().cloned()) {
        let kept = order.entry(shown.revision).or_insert_with(|| shown.clone());
        if *kept != shown {
            wrong.push(format!("revision {} is {kept:?} to one and {shown:?} to another", shown.revision));
        }
    }
    order
}

/// A value that nobody wrote, or that was written twice.
fn unasked(ops: &[Op], order: &Order) -> Vec<String> {
    let asked: HashMap<&String, &String> =
        ops.iter().filter_map(|op| op.writes().map(|value| (value, &op.key))).collect();
    let mut seen: HashMap<&String, i64> = HashMap::new();
    let mut wrong = Vec::new();
    for (revision, Written { key, value, .. }) in order {
        if asked.get(value) != Some(&key) {
            wrong.push(format!("nobody wrote {value} to {key}, and revision {revision} did"));
        }
        if let Some(first) = seen.insert(value, *revision) {
            wrong.push(format!("{value} was written once, and shows at revisions {first} and {revision}"));
        }
    }
    wrong
}

/// Whatever began after an answer came sees that answer's state or a later one, and a write makes a new one.
fn against_time(ops: &[Op], order: &Order) -> Vec<String> {
    let made: HashMap<&String, i64> =
        order.iter().map(|(revision, shown)| (&shown.value, *revision)).collect();
    // A write without an answer is placed where it was seen, if it was.
    let placed = ops.iter().filter_map(|op| {
        let write = op.writes();
        let revision = write.and_then(|value| made.get(value).copied()).or(op.answer.map(|(_, at)| at))?;
        Some((op, revision, write.is_some()))
    });
    let mut by_begin: Vec<_> = placed.collect();
    by_begin.sort_by_key(|(op, ..)| op.began);
    let mut by_end: Vec<_> =
        by_begin.iter().filter_map(|(op, revision, _)| op.answer.map(|(end, _)| (end, *revision))).collect();
    by_end.sort_unstable();
    let mut ended = by_end.into_iter().peekable();
    let mut newest = 0;
    let mut wrong = Vec::new();
    for (op, revision, write) in by_begin {
        while let Some((_, before)) = ended.next_if(|(end, _)| *end < op.began) {
            newest = newest.max(before);
        }
        if revision < newest + i64::from(write) {
            wrong.push(format!("after revision {newest} was answered, {op:?} happened at {revision}"));
        }
    }
    wrong
}

/// A read or a comparison that did not see the write just before it.
fn misread(op: &Op, order: &Order) -> Option<String> {
    let (_, revision) = op.answer?;
    let last =
        |until: i64| order.range(..=until).rev().map(|(_, shown)| shown).find(|shown| shown.key == op.key);
    let fits = match &op.deed {
        Deed::Put(_) => true,
        Deed::Get(found) => {
            let latest = last(revision).map(|shown| (shown.value.clone(), shown.revision));
            *found == latest
        }
        Deed::Swap { seen, won: true, .. } => last(revision - 1).map_or(0, |shown| shown.revision) == *seen,
        Deed::Swap { seen, won: false, .. } => last(revision).map_or(0, |shown| shown.revision) != *seen,
    };
    (!fits).then(|| format!("{op:?} did not see what was there: {:?}", last(revision)))
}

/// The watch tells every write once and in order.
fn gaps(order: &Order, watched: &[Written]) -> Vec<String> {
    let told: Vec<i64> = watched.iter().map(|shown| shown.revision).collect();
    let mut wrong: Vec<String> = told
        .windows(2)
        .filter(|pair| pair[0] >= pair[1])
        .map(|pair| format!("the watch told revision {} after {}", pair[1], pair[0]))
        .collect();
    let told: BTreeSet<i64> = told.into_iter().collect();
    let missed: Vec<i64> = order.keys().copied().filter(|revision| !told.contains(revision)).collect();
    if !missed.is_empty() {
        wrong.push(format!("the watch never told of revisions {missed:?}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(deed: Deed, began: u64, answer: Option<(u64, i64)>) -> Op {
        let ms = Duration::from_millis;
        Op { key: "k".into(), deed, began: ms(began), answer: answer.map(|(end, at)| (ms(end), at)) }
    }

    fn put(value: &str, began: u64, answer: Option<(u64, i64)>) -> Op {
        op(Deed::Put(value.into()), began, answer)
    }

    fn get(found: Option<(&str, i64)>, began: u64, answer: (u64, i64)) -> Op {
        op(Deed::Get(found.map(|(value, at)| (value.into(), at))), began, Some(answer))
    }

    fn swap(value: &str, seen: i64, won: bool, began: u64, answer: (u64, i64)) -> Op {
        op(Deed::Swap { value: value.into(), seen, won }, began, Some(answer))
    }

    fn told(writes: &[(&str, i64)]) -> Vec<Written> {
        let written = |(value, revision): &(&str, i64)| Written {
            key: "k".into(),
            value: (*value).to_owned(),
            revision: *revision,
        };
        writes.iter().map(written).collect()
    }

    #[test]
    fn a_good_history_passes() {
        let ops = [
            get(None, 0, (1, 1)),
            put("a", 2, Some((5, 2))),
            // Overlaps the write, and came before it.
            get(None, 3, (6, 1)),
            swap("b", 2, true, 7, (9, 3)),
            swap("c", 2, false, 8, (12, 3)),
            // No answer, and it happened all the same.
            put("d", 10, None),
            get(Some(("d", 4)), 20, (21, 4)),
            // No answer, and it never happened.
            put("e", 22, None),
        ];
        assert_eq!(violations(&ops, &told(&[("a", 2), ("b", 3), ("d", 4)])), Vec::<String>::new());
    }

    #[test]
    fn known_bad_histories_are_caught() {
        let first = put("a", 0, Some((5, 2)));
        let cases: [(&str, Vec<Op>, Vec<Written>); 9] = [
            ("did not see", vec![first.clone(), get(None, 6, (7, 2))], told(&[("a", 2)])),
            ("happened at", vec![first.clone(), get(None, 6, (7, 1))], told(&[("a", 2)])),
            ("happened at", vec![first.clone(), put("b", 6, Some((7, 2)))], told(&[("a", 2)])),
            ("to one and", vec![first.clone(), put("b", 1, Some((7, 2)))], told(&[("a", 2)])),
            ("did not see", vec![first.clone(), swap("b", 0, true, 6, (7, 3))], told(&[("a", 2), ("b", 3)])),
            ("did not see", vec![first.clone(), swap("b", 2, false, 6, (7, 2))], told(&[("a", 2)])),
            (
                "nobody wrote",
                vec![first.clone(), get(Some(("x", 3)), 6, (7, 3))],
                told(&[("a", 2), ("x", 3)]),
            ),
            ("shows at revisions", vec![first.clone()], told(&[("a", 2), ("a", 4)])),
            ("never told", vec![first.clone(), put("b", 6, Some((7, 3)))], told(&[("b", 3)])),
        ];
        for (says, ops, watched) in cases {
            let found = violations(&ops, &watched);
            assert!(found.iter().any(|wrong| wrong.contains(says)), "{says}: {found:?}");
        }
        let backwards = violations(&[first, put("b", 6, Some((7, 3)))], &told(&[("b", 3), ("a", 2)]));
        assert!(backwards.iter().any(|wrong| wrong.contains("after 3")), "{backwards:?}");
    }

    #[test]
    fn a_write_that_got_no_answer_cannot_happen_before_it_was_asked_for() {
        let ops = [put("a", 0, Some((5, 3))), put("b", 6, None)];
        let found = violations(&ops, &told(&[("b", 2), ("a", 3)]));
        assert!(found.iter().any(|wrong| wrong.contains("happened at 2")), "{found:?}");
    }
}
