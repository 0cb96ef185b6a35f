//! Conversion of NginxOperators, on any JSON: there and back again, and there again, is as once.

#![no_main]

use api::nginx::Version::{V1alpha1, V1alpha2};
use api::nginx::conversion::convert;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    for (there, back) in [(V1alpha1, V1alpha2), (V1alpha2, V1alpha1)] {
        let Ok(once) = convert(object.clone(), there) else { continue };
        let returned = convert(once.clone(), back).expect("an object of ours");
        let again = convert(returned.clone(), there).expect("an object of ours");
        let returned_again = convert(again, back).expect("an object of ours");
        assert_eq!(returned_again, returned);
    }
});
