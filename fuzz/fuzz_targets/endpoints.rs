//! Endpoints of clusters, as people write them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(address) = snapshot::fuzz::address(text) {
        // Nothing is sent before the first call.
        let (host, port) = address.rsplit_once(':').expect("a port");
        assert!(!host.is_empty() && port.parse::<u16>().is_ok(), "{address:?}");
    }
});
