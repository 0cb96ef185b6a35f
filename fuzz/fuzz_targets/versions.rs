//! Versions of etcd and tables of them, on any text.

#![no_main]

use domain::{HopTable, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(version) = text.parse::<Version>() {
        assert_eq!(version.to_string().parse(), Ok(version), "written and read again");
        for other in [Version::new(3, 5, 16), Version::new(u64::MAX, 0, 0)] {
            assert_eq!(version < other, other > version);
        }
        if let Ok(accepted) = HopTable::default().accept(version) {
            assert_eq!(accepted, version);
        }
    }
    if let Ok(table) = text.parse::<HopTable>() {
        assert!(!table.to_string().is_empty());
    }
});
