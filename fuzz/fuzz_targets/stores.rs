//! Places of backups as init containers and command lines get them, and Secrets with AWS's files: parts divided by NUL.

#![no_main]

use libfuzzer_sys::fuzz_target;
use snapshot::StoreSource;
use snapshot::store::{Secret, open};

const KEYS: [&str; 6] =
    ["credentials", "config", "storage-account", "storage-key", "cloud", "application_default_credentials.json"];

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|byte| *byte == 0);
    let Ok(source) = serde_json::from_slice::<StoreSource>(parts.next().unwrap_or_default()) else { return };
    let again: StoreSource = serde_json::from_value(serde_json::json!(source)).expect("what was written");
    assert_eq!(again, source);
    let secret: Secret = KEYS.iter().map(ToString::to_string).zip(parts.map(<[u8]>::to_vec)).collect();
    // Nothing is sent or made by opening.
    if let Ok(place) = open(&source, &secret) {
        let path = place.path();
        assert!(path.split('/').all(|part| part != ".."), "{path:?} leaves its store");
        assert!(!place.to_string().is_empty());
    }
});
