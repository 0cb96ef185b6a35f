//! When backups are due: a schedule, a time zone, and two moments, one to a line.

#![no_main]

use api::EtcdBackupSpec;
use etcd_operator::backup::timing::Timing;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let mut word = || lines.next().unwrap_or_default().to_owned();
    let spec = EtcdBackupSpec { schedule: word(), time_zone: word(), ..EtcdBackupSpec::default() };
    let mut moment = || word().parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    let (Ok(timing), Some(created), Some(now)) = (Timing::of(&spec), moment(), moment()) else { return };
    if let Some(due) = timing.due(created, now) {
        assert!(due <= now || due == created, "{due} is after {now}");
    }
    if let Some(next) = timing.next(created, now) {
        assert!(next > now, "{next} is not after {now}");
    }
});
