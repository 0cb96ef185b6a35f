//! What can go wrong with a store, in words that say what to do.

use object_store::Error as Cause;
use std::error::Error;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0:?} is no path of a backup: write bucket/key")]
    BadPath(String),
    #[error("{0:?} is no endpoint: write http://host:port or https://host:port")]
    BadEndpoint(String),
    #[error("the secret has no key {key:?}: it must hold {wanted}")]
    SecretKeyMissing { key: &'static str, wanted: &'static str },
    #[error("the secret's {key:?} cannot be used: {why}")]
    BadSecret { key: &'static str, why: String },
    #[error("the secret has no profile {name:?}: its files have {known}")]
    NoProfile { name: String, known: String },
    #[error("the folder {} cannot be used: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the client of {place} cannot be made: {why}")]
    Client { place: String, why: String },
    #[error("there is no {place}")]
    NoObject { place: String },
    #[error("there is no bucket for {place}: create it, or correct the path")]
    NoBucket { place: String },
    #[error("{place} is refused: check the secret and its rights ({why})")]
    Denied { place: String, why: String },
    #[error("the store of {place} cannot be reached: {why}")]
    Unreachable { place: String, why: String },
    #[error("there is no space left for {place}")]
    Full { place: String },
    #[error("{place}: {why}")]
    Other { place: String, why: String },
}

impl StoreError {
    pub(crate) fn of(place: impl ToString, cause: &Cause) -> Self {
        let place = place.to_string();
        let text = cause.to_string();
        let said = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if said(&["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]) {
            return Self::NoBucket { place };
        }
        // The last is how versitygw says the first.
        if said(&[
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "InvalidAuthenticationInfo",
            "XAdminUserNotFound",
        ]) {
            return Self::Denied { place, why: innermost(cause) };
        }
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if io_cause(cause).is_some_and(|io| full.contains(&io.kind())) {
            return Self::Full { place };
        }
        match cause {
            Cause::NotFound { .. } => Self::NoObject { place },
            Cause::PermissionDenied { .. } | Cause::Unauthenticated { .. } => {
                Self::Denied { place, why: innermost(cause) }
            }
            _ if said(&["error sending request", "HTTP error", "timed out"]) => {
                Self::Unreachable { place, why: innermost(cause) }
            }
            _ => Self::Other { place, why: text },
        }
    }

    /// The store says that there is nothing there, and it can be believed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NoObject { .. })
    }
}

/// The layers around it repeat the address, which the message has already.
fn innermost(cause: &dyn Error) -> String {
    let mut cause: &dyn Error = cause;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn io_cause<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(cause);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<io::Error>() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_used_up_quota_are_both_no_space() {
        let of = |kind: io::ErrorKind| {
            let source = Box::new(io::Error::from(kind));
            StoreError::of("a/b", &Cause::Generic { store: "LocalFileSystem", source })
        };
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(matches!(of(kind), StoreError::Full { .. }), "{kind:?}");
        }
        assert!(matches!(of(io::ErrorKind::BrokenPipe), StoreError::Other { .. }));
    }
}
