//! What the cache may not know yet of our own last write of a status.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::nginx::NginxOperator;
use kube::ResourceExt;

/// The last write of each instance's status, by its UID, as long as it matters.
///
/// A cache that does not have it shows the status of before. To compare with that would be wrong: a status that went away and
/// came back would not be written, and no event would ever tell, since our own writes do not wake the loop.
#[derive(Debug, Default)]
pub struct Written(Mutex<HashMap<String, Last>>);

#[derive(Debug, PartialEq, Eq)]
enum Last {
    /// It was done, and replaced this version.
    Replaced(String),
    /// Its answer was lost.
    Unknown,
}

impl Written {
    /// A write that was made for this view of the instance was done, and gave this version.
    pub fn done(&self, instance: &NginxOperator, version: Option<&str>) {
        let uid = instance.uid().unwrap_or_default();
        match instance.resource_version() {
            Some(old) if version != Some(old.as_str()) => drop(self.all().insert(uid, Last::Replaced(old))),
            // It changed nothing: the cache is as new as can be.
            _ => drop(self.all().remove(&uid)),
        }
    }

    /// Nobody told whether a write was done.
    pub fn unknown(&self, instance: &NginxOperator) {
        self.all().insert(instance.uid().unwrap_or_default(), Last::Unknown);
    }

    /// This view is older than our last write.
    pub fn is_behind(&self, instance: &NginxOperator) -> bool {
        let last = instance.resource_version().map(Last::Replaced);
        last.is_some() && self.all().get(&instance.uid().unwrap_or_default()) == last.as_ref()
    }

    /// This view may be older than our last write: nothing is to be concluded from its status.
    pub fn is_doubtful(&self, instance: &NginxOperator) -> bool {
        self.all().get(&instance.uid().unwrap_or_default()) == Some(&Last::Unknown)
    }

    /// Forgets all but these.
    pub fn retain(&self, keep: impl Fn(&String) -> bool) {
        self.all().retain(|uid, _| keep(uid));
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(version: &str) -> NginxOperator {
        let mut instance = NginxOperator::new("one", api::nginx::NginxOperatorSpec::default());
        instance.metadata.resource_version = Some(version.to_owned());
        instance
    }

    #[test]
    fn a_view_is_behind_until_it_has_our_write() {
        let written = Written::default();
        assert!(!written.is_behind(&seen("1")));
        written.done(&seen("1"), Some("2"));
        assert!(written.is_behind(&seen("1")) && !written.is_behind(&seen("2")));
        assert!(!written.is_doubtful(&seen("1")));
    }

    #[test]
    fn a_namesake_has_nothing_in_common_with_the_one_before() {
        let (written, mut namesake) = (Written::default(), seen("1"));
        namesake.metadata.uid = Some("other".to_owned());
        written.unknown(&seen("1"));
        assert!(!written.is_doubtful(&namesake));
        written.unknown(&namesake);
        written.retain(|uid| uid == "other");
        assert!(written.is_doubtful(&namesake) && !written.is_doubtful(&seen("1")));
    }

    #[test]
    fn a_lost_answer_is_doubted_until_a_write_is_answered() {
        let written = Written::default();
        written.unknown(&seen("1"));
        assert!(written.is_doubtful(&seen("1")) && !written.is_behind(&seen("1")));
        // The same status again changes nothing, and nothing will come of it.
        written.done(&seen("2"), Some("2"));
        assert!(!written.is_doubtful(&seen("2")) && !written.is_behind(&seen("2")));
    }
}
