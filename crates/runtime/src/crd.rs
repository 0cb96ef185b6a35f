//! Installs a CRD or brings it up to date, and never back.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use semver::Version;
use thiserror::Error;
use tokio::time::Instant;
use tracing::{info, warn};

const POLL: Duration = Duration::from_millis(200);

/// Writes that may be lost to others who write at the same time, the API server among them: each was some progress of theirs.
const MAX_CONFLICTS: usize = 20;

#[derive(Debug, Error)]
pub enum CrdError {
    #[error("cannot read or write CRD {name}: {source}")]
    Api { name: String, source: kube::Error },
    #[error("CRD {0} is being deleted; it is made again when it is gone")]
    BeingDeleted(String),
    #[error(
        "CRD {name} says in annotation {annotation} that {value:?} wrote it, which is no version; \
         remove the annotation to have the CRD replaced"
    )]
    UnreadableVersion { name: String, annotation: String, value: String },
    #[error(
        "CRD {name} was written by the newer operator {theirs} and no longer serves {version}; run {theirs}"
    )]
    TooNew { name: String, theirs: Version, version: String },
    #[error("CRD {name} changed under every try to write it")]
    Contended { name: String },
    #[error("CRD {name} was not accepted: {why}")]
    Refused { name: String, why: String },
    #[error("CRD {name} is not served after {waited:?}: {why}")]
    NotServed { name: String, waited: Duration, why: String },
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    Created,
    Updated,
    /// It was as it should be.
    Unchanged,
    /// A newer operator wrote it; it was left alone.
    KeptNewer(Version),
}

/// A CRD and the version of the operator that it belongs to.
#[derive(Clone, Debug)]
pub struct Wanted {
    crd: CustomResourceDefinition,
    annotation: &'static str,
    version: Version,
}

impl Wanted {
    /// `annotation` keeps the version of the operator that wrote the CRD.
    pub fn new(mut crd: CustomResourceDefinition, annotation: &'static str, version: Version) -> Self {
        crd.annotations_mut().insert(annotation.to_owned(), version.to_string());
        Self { crd, annotation, version }
    }

    /// As it is written: for manifests too, so that a CRD applied by hand is known as ours.
    pub fn crd(&self) -> &CustomResourceDefinition {
        &self.crd
    }

    /// Makes the CRD, or brings it up to date, and waits until it is served.
    pub async fn install(&self, client: &Client, patience: Duration) -> Result<Installed, CrdError> {
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let name = self.crd.name_any();
        let failed = |source| CrdError::Api { name: name.clone(), source };
        for _ in 0..MAX_CONFLICTS {
            let written = match api.get_opt(&name).await.map_err(failed)? {
                None => {
                    let created = api.create(&PostParams::default(), &self.crd).await;
                    created.map(|crd| (Installed::Created, crd))
                }
                Some(existing) => match self.update_of(&existing)? {
                    Plan::Keep(kept) => Ok((kept, existing)),
                    Plan::Write(update) => {
                        let updated = api.replace(&name, &PostParams::default(), &update).await;
                        // The server drops a write that changes nothing; so do we in what we tell.
                        updated.map(|crd| {
                            let same = crd.resource_version() == existing.resource_version();
                            (if same { Installed::Unchanged } else { Installed::Updated }, crd)
                        })
                    }
                },
            };
            match written {
                Ok((installed, crd)) => {
                    self.wait_until_served(&api, crd, patience).await?;
                    info!(crd = name, ?installed, version = %self.version, "the CRD is served");
                    return Ok(installed);
                }
                // Somebody else wrote, made or deleted it meanwhile: look again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Err(CrdError::Contended { name })
    }

    fn update_of(&self, existing: &CustomResourceDefinition) -> Result<Plan, CrdError> {
        let name = existing.name_any();
        if existing.metadata.deletion_timestamp.is_some() {
            return Err(CrdError::BeingDeleted(name));
        }
        if let Some(value) = existing.annotations().get(self.annotation) {
            let theirs = Version::parse(value).map_err(|_| CrdError::UnreadableVersion {
                name: name.clone(),
                annotation: self.annotation.to_owned(),
                value: value.clone(),
            })?;
            if theirs > self.version {
                return match self.not_served_by(existing) {
                    Some(version) => Err(CrdError::TooNew { name, theirs, version }),
                    None => Ok(Plan::Keep(Installed::KeptNewer(theirs))),
                };
            }
        }
        let mut update = existing.clone();
        update.annotations_mut().extend(self.crd.annotations().clone());
        update.labels_mut().extend(self.crd.labels().clone());
        update.spec = self.crd.spec.clone();
        self.keep_stored(existing, &mut update);
        Ok(Plan::Write(Box::new(update)))
    }

    /// A version that we serve and the existing CRD does not.
    fn not_served_by(&self, existing: &CustomResourceDefinition) -> Option<String> {
        let served = |name: &str| existing.spec.versions.iter().any(|v| v.name == name && v.served);
        self.crd.spec.versions.iter().find(|v| v.served && !served(&v.name)).map(|v| v.name.clone())
    }

    /// Objects may still be stored in a version that we no longer know: it stays as it is until a migration.
    fn keep_stored(&self, existing: &CustomResourceDefinition, update: &mut CustomResourceDefinition) {
        let stored = existing.status.as_ref().and_then(|status| status.stored_versions.clone());
        for name in stored.unwrap_or_default() {
            if self.crd.spec.versions.iter().any(|version| version.name == name) {
                continue;
            }
            let Some(old) = existing.spec.versions.iter().find(|version| version.name == name) else {
                continue;
            };
            warn!(
                crd = update.name_any(),
                version = name,
                "objects may be stored in it: the version is kept"
            );
            let mut kept = old.clone();
            kept.storage = false;
            update.spec.versions.push(kept);
            if update.spec.conversion.is_none() {
                update.spec.conversion.clone_from(&existing.spec.conversion);
            }
        }
    }

    async fn wait_until_served(
        &self,
        api: &Api<CustomResourceDefinition>,
        mut crd: CustomResourceDefinition,
        patience: Duration,
    ) -> Result<(), CrdError> {
        let (name, began) = (self.crd.name_any(), Instant::now());
        loop {
            match Served::of(&crd) {
                Served::Yes => return Ok(()),
                Served::Refused(why) => return Err(CrdError::Refused { name, why }),
                Served::NotYet(why) if began.elapsed() >= patience => {
                    return Err(CrdError::NotServed { name, waited: patience, why });
                }
                Served::NotYet(_) => tokio::time::sleep(POLL).await,
            }
            crd = api.get(&name).await.map_err(|source| CrdError::Api { name: name.clone(), source })?;
        }
    }
}

enum Plan {
    Keep(Installed),
    Write(Box<CustomResourceDefinition>),
}

enum Served {
    Yes,
    NotYet(String),
    Refused(String),
}

impl Served {
    fn of(crd: &CustomResourceDefinition) -> Self {
        let conditions =
            crd.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let find = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        match (find("NamesAccepted"), find("Established")) {
            (Some(names), _) if names.status == "False" => Self::Refused(why(names)),
            (_, Some(established)) if established.status == "True" => Self::Yes,
            (_, Some(established)) => Self::NotYet(why(established)),
            (_, None) => Self::NotYet("the API server has not looked at it yet".to_owned()),
        }
    }
}

fn why(condition: &CustomResourceDefinitionCondition) -> String {
    let text = condition.message.clone().or_else(|| condition.reason.clone());
    text.unwrap_or_else(|| format!("{} is {}", condition.type_, condition.status))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ANNOTATION: &str = "x.io/operator-version";

    fn crd(versions: &[(&str, bool)]) -> CustomResourceDefinition {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, storage)| json!({ "name": name, "served": true, "storage": storage }))
            .collect();
        let crd = json!({
            "metadata": { "name": "foos.x.io" },
            "spec": {
                "group": "x.io", "scope": "Namespaced", "names": { "kind": "Foo", "plural": "foos" },
                "versions": versions,
            },
        });
        serde_json::from_value(crd).unwrap()
    }

    fn wanted(version: &str) -> Wanted {
        Wanted::new(crd(&[("v2", true)]), ANNOTATION, version.parse().unwrap())
    }

    fn existing(
        versions: &[(&str, bool)],
        written_by: Option<&str>,
        stored: &[&str],
    ) -> CustomResourceDefinition {
        let mut crd = crd(versions);
        crd.metadata.resource_version = Some("5".into());
        crd.metadata.annotations = written_by.map(|by| [(ANNOTATION.to_owned(), by.to_owned())].into());
        crd.status.get_or_insert_default().stored_versions =
            Some(stored.iter().map(ToString::to_string).collect());
        crd
    }

    fn written(plan: Result<Plan, CrdError>) -> CustomResourceDefinition {
        match plan {
            Ok(Plan::Write(update)) => *update,
            Ok(Plan::Keep(kept)) => panic!("kept: {kept:?}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn older_equal_and_unmarked_ones_are_replaced_under_their_resource_version() {
        for by in [None, Some("0.9.0"), Some("0.10.0"), Some("0.10.0-rc.1")] {
            let update = written(wanted("0.10.0").update_of(&existing(&[("v1", true)], by, &["v2"])));
            assert_eq!(update.annotations()[ANNOTATION], "0.10.0", "{by:?}");
            assert_eq!(update.resource_version().as_deref(), Some("5"), "{by:?}");
            assert_eq!(update.spec, wanted("0.10.0").crd.spec, "{by:?}");
        }
    }

    #[test]
    fn what_a_newer_operator_wrote_is_kept_if_we_can_live_with_it() {
        for newer in ["0.10.1", "0.11.0", "1.0.0"] {
            let plan =
                wanted("0.10.0").update_of(&existing(&[("v2", false), ("v3", true)], Some(newer), &["v3"]));
            assert!(matches!(plan, Ok(Plan::Keep(Installed::KeptNewer(v))) if v.to_string() == newer));
        }
        let plan = wanted("0.10.0").update_of(&existing(&[("v3", true)], Some("1.0.0"), &["v3"]));
        let error = plan.err().unwrap().to_string();
        assert_eq!(
            error,
            "CRD foos.x.io was written by the newer operator 1.0.0 and no longer serves v2; run 1.0.0"
        );
    }

    #[test]
    fn a_version_in_which_objects_may_be_stored_is_never_dropped() {
        let before = existing(&[("v0", false), ("v1", true), ("v2", false)], Some("0.9.0"), &["v1", "v2"]);
        let update = written(wanted("0.10.0").update_of(&before));
        let versions: Vec<_> = update.spec.versions.iter().map(|v| (v.name.as_str(), v.storage)).collect();
        assert_eq!(versions, [("v2", true), ("v1", false)], "v1 is kept, v0 holds nothing");
    }

    #[test]
    fn marks_of_others_stay() {
        let mut before = existing(&[("v2", true)], Some("0.9.0"), &["v2"]);
        before.labels_mut().insert("team".into(), "x".into());
        before.annotations_mut().insert("note".into(), "y".into());
        let update = written(wanted("0.10.0").update_of(&before));
        assert_eq!(update.labels()["team"], "x");
        assert_eq!(update.annotations()["note"], "y");
    }

    #[test]
    fn a_mark_that_is_no_version_is_not_guessed_at() {
        let plan = wanted("0.10.0").update_of(&existing(&[("v2", true)], Some("latest"), &["v2"]));
        let error = plan.err().unwrap().to_string();
        assert!(error.contains("\"latest\"") && error.contains("remove the annotation"), "{error}");
    }

    #[test]
    fn one_that_is_being_deleted_is_waited_for() {
        let mut going: CustomResourceDefinition = existing(&[("v2", true)], None, &["v2"]);
        let now = jiff::Timestamp::UNIX_EPOCH;
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        assert!(matches!(wanted("0.10.0").update_of(&going), Err(CrdError::BeingDeleted(_))));
    }
}
