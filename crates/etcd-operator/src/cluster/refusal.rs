//! A step that Kubernetes does not let us take, because of a quota, a policy, a webhook or rights: told until it does.

use domain::{Condition, ConditionKind, Report, Severity, Truth};

use super::apply::ApplyError;

/// The last refusal, as long as it stands.
#[derive(Debug, Default)]
pub struct Refused(Option<Refusal>);

#[derive(Debug)]
struct Refusal {
    step: &'static str,
    member: String,
    /// Kubernetes' own.
    words: String,
}

impl Refused {
    /// A step failed; only a refusal is worth remembering.
    pub fn note(&mut self, error: &ApplyError, member: Option<&str>) {
        let ApplyError::Kubernetes { step, source: kube::Error::Api(status) } = error else { return };
        // Too slow and too many are no answers to what was asked; a webhook that cannot be called is one for as long as that lasts.
        let answers = (400..500).contains(&status.code) && ![408, 429].contains(&status.code);
        if !answers && !status.message.contains("failed calling webhook") {
            return;
        }
        let member = member.unwrap_or_default().to_owned();
        let new = Refusal { step, member, words: status.message.clone() };
        // A new member gets another name at every try, which is no reason to write status again.
        if !self.0.as_ref().is_some_and(|before| before.is_like(&new)) {
            self.0 = Some(new);
        }
    }

    /// All steps were taken, or there is none to take.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// What the planner itself holds against a cluster is told first.
    pub fn tell(&self, report: &mut Report) {
        let degraded = |condition: &Condition| condition.kind == ConditionKind::Degraded;
        let Some(Refusal { step, words, .. }) = &self.0 else { return };
        if report.conditions.iter().any(degraded) {
            return;
        }
        let message = format!("Kubernetes refused {step}, which is tried again: {words}");
        if report.reason.is_empty() {
            report.reason.clone_from(&message);
        }
        report.conditions.push(Condition {
            kind: ConditionKind::Degraded,
            status: Truth::True,
            reason: "KubernetesRefused".to_owned(),
            message,
            announce: Some(Severity::Warning),
        });
    }
}

impl Refusal {
    fn is_like(&self, other: &Self) -> bool {
        let nameless = |refusal: &Self| match refusal.member.as_str() {
            "" => refusal.words.clone(),
            member => refusal.words.replace(member, ""),
        };
        self.step == other.step && nameless(self) == nameless(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::silent;
    use kube::core::Status;

    fn error(code: u16, words: &str) -> ApplyError {
        let status = Status { code, message: words.into(), ..Status::default() };
        ApplyError::Kubernetes { step: "CreateMember", source: kube::Error::Api(Box::new(status)) }
    }

    fn told(refused: &Refused, reason: &str) -> Report {
        let mut report = Report { reason: reason.into(), ..silent() };
        refused.tell(&mut report);
        report
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_kubernetes_until_it_is_none() {
        let mut refused = Refused::default();
        assert!(told(&refused, "").conditions.is_empty());
        refused.note(&error(403, "pods \"c-1\" is forbidden: exceeded quota"), Some("c-1"));
        let report = told(&refused, "");
        let degraded = &report.conditions[0];
        assert_eq!((degraded.kind, degraded.status), (ConditionKind::Degraded, Truth::True));
        assert_eq!(
            (degraded.reason.as_str(), degraded.announce),
            ("KubernetesRefused", Some(Severity::Warning))
        );
        let words = "Kubernetes refused CreateMember, which is tried again: pods \"c-1\" is forbidden: exceeded quota";
        assert_eq!((degraded.message.as_str(), report.reason.as_str()), (words, words));
        assert_eq!(told(&refused, "graver").reason, "graver");
        refused.forget();
        assert!(told(&refused, "").conditions.is_empty());
    }

    #[test]
    fn the_next_try_is_told_only_if_it_is_refused_for_something_else() {
        let mut refused = Refused::default();
        refused.note(&error(403, "\"c-1\" is too much"), Some("c-1"));
        let first = told(&refused, "");
        refused.note(&error(403, "\"c-2\" is too much"), Some("c-2"));
        // The line was cut, the server was busy: what was said before stands.
        refused.note(&error(500, "no"), None);
        refused.note(&error(429, "later"), None);
        assert_eq!(told(&refused, ""), first);
        refused.note(&error(422, "\"c-3\" is malformed"), Some("c-3"));
        assert!(told(&refused, "").reason.ends_with("\"c-3\" is malformed"));
    }

    #[test]
    fn a_webhook_that_cannot_be_called_is_named() {
        let mut refused = Refused::default();
        refused.note(&error(500, "etcdserver: request timed out"), None);
        assert!(told(&refused, "").conditions.is_empty());
        let words =
            "Internal error occurred: failed calling webhook \"deny.example.com\": connection refused";
        refused.note(&error(500, words), Some("c-1"));
        assert!(told(&refused, "").reason.ends_with(words));
    }

    #[test]
    fn what_the_planner_says_comes_first() {
        let mut refused = Refused::default();
        refused.note(&error(403, "no"), None);
        let mut report = told(&refused, "");
        report.conditions[0].reason = "Rival".into();
        refused.tell(&mut report);
        assert_eq!(report.conditions.len(), 1);
        assert_eq!(report.conditions[0].reason, "Rival");
    }
}
