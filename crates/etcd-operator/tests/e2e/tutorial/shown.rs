//! What was shown, compared with what the book and the real coreos operator show: names and times aside, and more is
//! allowed than less.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::Outcome;

/// Every expected line is there, in this order. Runs of blanks count as one.
pub fn shows(text: &str, expected: &[&str]) -> Outcome {
    let mut lines = text.lines().map(plain);
    for line in expected {
        let wanted = plain(line);
        if !lines.any(|line| line == wanted) {
            return Err(format!("{wanted:?} is missing, or not in its place, in:\n{text}").into());
        }
    }
    Ok(())
}

/// A line that starts with these words, runs of blanks counted as one.
pub fn row<'a>(text: &'a str, start: &str) -> Outcome<&'a str> {
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = text.lines().find(|line| squeezed(line).starts_with(start));
    found.ok_or_else(|| format!("no line starts with {start:?} in:\n{text}").into())
}

/// `kubectl describe` shows all that the golden one shows, from the spec to the events.
pub fn describes(text: &str, golden: &str) -> Outcome {
    let (state, events) = golden.split_once("\nEvents:").ok_or("the golden text has no events")?;
    let spec = state.find("\nSpec:").ok_or("the golden text has no spec")?;
    shows(text, &state[spec + 1..].lines().collect::<Vec<_>>())?;
    let (_, ours) = text.split_once("\nEvents:").ok_or("no events are shown")?;
    let ours = tally(ours);
    for (event, count) in tally(events) {
        if ours.get(&event).copied().unwrap_or_default() < count {
            return Err(format!("{event:?} is not shown {count} times in:\n{text}").into());
        }
    }
    Ok(())
}

/// How often each event is shown: its type, reason and message, without age and source.
fn tally(events: &str) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for line in events.lines().filter(|line| line.contains("Normal ") || line.contains("Warning ")) {
        // Columns are two blanks or more apart; words within a reason or message only one.
        let columns: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        if let [kind, reason, _age, _from, message] = columns[..] {
            *tally.entry(plain(&format!("{kind} {reason} {message}"))).or_default() += 1;
        }
    }
    tally
}

/// Whatever the golden object says, ours says too.
pub fn contains(ours: &Value, golden: &Value, at: &str) -> Outcome {
    match (golden, ours) {
        (Value::Object(golden), Value::Object(ours)) => {
            for (key, value) in golden {
                let ours = ours.get(key).ok_or_else(|| format!("{at}.{key} is missing"))?;
                contains(ours, value, &format!("{at}.{key}"))?;
            }
            Ok(())
        }
        (Value::Array(golden), Value::Array(ours)) => {
            let left = golden.iter().find(|wanted| !ours.iter().any(|one| contains(one, wanted, at).is_ok()));
            left.map_or(Ok(()), |left| Err(format!("{at} has no {left}: {ours:?}").into()))
        }
        (Value::String(golden), Value::String(ours)) if plain(golden) == plain(ours) => Ok(()),
        (golden, ours) if golden == ours => Ok(()),
        (golden, ours) => Err(format!("{at} is {ours}, not {golden}").into()),
    }
}

/// Without what differs from run to run: times, member names, the width of columns.
fn plain(line: &str) -> String {
    line.split_whitespace().map(plain_word).collect::<Vec<_>>().join(" ")
}

fn plain_word(word: &str) -> &str {
    let is_time = word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
    let suffix = word.strip_prefix("example-etcd-cluster-").or_else(|| word.strip_prefix("core-"));
    match suffix {
        _ if is_time => "TIME",
        Some(suffix) if is_random(suffix) => "MEMBER",
        _ => word,
    }
}

/// The part of a member's name that is drawn by lot.
pub fn is_random(suffix: &str) -> bool {
    suffix.len() == 10 && suffix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}
