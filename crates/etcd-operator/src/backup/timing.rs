//! When backups are due. A slot is the moment that one was due at; each slot is worth one backup, whenever it is made.

use std::time::Duration;

use api::EtcdBackupSpec;
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq)]
pub enum Timing {
    /// Due when the EtcdBackup was made, and never again.
    Once,
    /// Due when the EtcdBackup was made, and every so often since.
    Every(Duration),
    /// Due when the clocks of a place show so.
    Cron(Box<Cron>, TimeZone),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TimingError {
    #[error("schedule {schedule:?} cannot be read, write five fields such as \"0 3 * * *\": {why}")]
    Schedule { schedule: String, why: String },
    #[error("schedule {0:?} never comes: no year has such a day")]
    Never(String),
    #[error("timeZone {0:?} is not known: write one such as Europe/Berlin")]
    TimeZone(String),
    #[error("there are both a schedule and a backupIntervalInSecond: take one of them out")]
    Both,
}

impl Timing {
    pub fn of(spec: &EtcdBackupSpec) -> Result<Self, TimingError> {
        let interval = spec.policy().interval();
        if spec.schedule.is_empty() {
            return Ok(interval.map_or(Self::Once, Self::Every));
        }
        if interval.is_some() {
            return Err(TimingError::Both);
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).build();
        let cron = parser
            .parse(&spec.schedule)
            .map_err(|why| TimingError::Schedule { schedule: spec.schedule.clone(), why: why.to_string() })?;
        let zone = match spec.time_zone.as_str() {
            "" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|_| TimingError::TimeZone(name.to_owned()))?,
        };
        // Any moment will do: what comes at all comes again.
        if cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(zone.clone()), false).is_err() {
            return Err(TimingError::Never(spec.schedule.clone()));
        }
        Ok(Self::Cron(Box::new(cron), zone))
    }

    /// The last slot that has come. What was missed before it is not made up for: one backup of today is worth as much
    /// as all of them.
    pub fn due(&self, created: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once => Some(created),
            Self::Every(interval) => slot_of(created, *interval, now, 0),
            Self::Cron(cron, zone) => {
                let slot = cron.find_previous_occurrence(&now.to_zoned(zone.clone()), true).ok()?.timestamp();
                (slot > created).then_some(slot)
            }
        }
    }

    /// The first slot that has not come yet.
    pub fn next(&self, created: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once => None,
            Self::Every(interval) => slot_of(created, *interval, now, 1),
            Self::Cron(cron, zone) => {
                let next = cron.find_next_occurrence(&now.max(created).to_zoned(zone.clone()), false);
                next.ok().map(|next| next.timestamp())
            }
        }
    }
}

/// The `later`th slot after the last one that has come. A clock that went back does not make slots before the first.
fn slot_of(created: Timestamp, interval: Duration, now: Timestamp, later: i64) -> Option<Timestamp> {
    let interval = i64::try_from(interval.as_secs()).ok().filter(|interval| *interval > 0)?;
    let come = now.duration_since(created).as_secs().max(0) / interval;
    let offset = come.checked_add(later)?.checked_mul(interval)?;
    created.checked_add(SignedDuration::from_secs(offset)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1beta2::BackupPolicy;
    use rstest::rstest;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spec(interval: i64, schedule: &str, time_zone: &str) -> EtcdBackupSpec {
        EtcdBackupSpec {
            backup_policy: Some(BackupPolicy {
                backup_interval_in_second: interval,
                ..BackupPolicy::default()
            }),
            schedule: schedule.into(),
            time_zone: time_zone.into(),
            ..EtcdBackupSpec::default()
        }
    }

    #[rstest]
    #[case::once(0, "", "", "2026-01-02T00:00:00Z", Some("2026-01-01T12:00:00Z"), None)]
    #[case::the_first_at_once(
        3600,
        "",
        "",
        "2026-01-01T12:00:00Z",
        Some("2026-01-01T12:00:00Z"),
        Some("2026-01-01T13:00:00Z")
    )]
    #[case::between(
        3600,
        "",
        "",
        "2026-01-01T14:59:59Z",
        Some("2026-01-01T14:00:00Z"),
        Some("2026-01-01T15:00:00Z")
    )]
    #[case::on_the_dot(
        3600,
        "",
        "",
        "2026-01-01T15:00:00Z",
        Some("2026-01-01T15:00:00Z"),
        Some("2026-01-01T16:00:00Z")
    )]
    #[case::after_days(
        3600,
        "",
        "",
        "2026-01-09T03:30:00Z",
        Some("2026-01-09T03:00:00Z"),
        Some("2026-01-09T04:00:00Z")
    )]
    #[case::a_clock_that_went_back(
        3600,
        "",
        "",
        "2025-12-31T00:00:00Z",
        Some("2026-01-01T12:00:00Z"),
        Some("2026-01-01T13:00:00Z")
    )]
    #[case::none_before_it_was_made(
        0,
        "0 3 * * *",
        "",
        "2026-01-01T18:00:00Z",
        None,
        Some("2026-01-02T03:00:00Z")
    )]
    #[case::at_three(
        0,
        "0 3 * * *",
        "",
        "2026-01-02T03:00:00Z",
        Some("2026-01-02T03:00:00Z"),
        Some("2026-01-03T03:00:00Z")
    )]
    #[case::at_three_in_berlin(
        0,
        "0 3 * * *",
        "Europe/Berlin",
        "2026-07-02T12:00:00Z",
        Some("2026-07-02T01:00:00Z"),
        Some("2026-07-03T01:00:00Z")
    )]
    #[case::in_winter(
        0,
        "0 3 * * *",
        "Europe/Berlin",
        "2026-12-02T12:00:00Z",
        Some("2026-12-02T02:00:00Z"),
        Some("2026-12-03T02:00:00Z")
    )]
    #[case::weekdays(
        0,
        "30 22 * * MON-FRI",
        "",
        "2026-01-04T12:00:00Z",
        Some("2026-01-02T22:30:00Z"),
        Some("2026-01-05T22:30:00Z")
    )]
    #[case::in_leap_years(0, "0 0 29 2 *", "", "2026-01-02T00:00:00Z", None, Some("2028-02-29T00:00:00Z"))]
    fn slots(
        #[case] interval: i64,
        #[case] schedule: &str,
        #[case] zone: &str,
        #[case] now: &str,
        #[case] due: Option<&str>,
        #[case] next: Option<&str>,
    ) {
        let timing = Timing::of(&spec(interval, schedule, zone)).unwrap();
        let created = at("2026-01-01T12:00:00Z");
        assert_eq!(timing.due(created, at(now)), due.map(at), "due");
        assert_eq!(timing.next(created, at(now)), next.map(at), "next");
    }

    #[rstest]
    #[case(0, "every day", "", "five fields")]
    #[case(0, "61 * * * *", "", "five fields")]
    #[case(0, "* * * * * *", "", "five fields")]
    #[case(0, "0 0 30 2 *", "", "never comes")]
    #[case(0, "0 3 * * *", "Mars/Olympus", "Europe/Berlin")]
    #[case(60, "0 3 * * *", "", "take one of them out")]
    fn what_cannot_be_read_is_said(
        #[case] interval: i64,
        #[case] schedule: &str,
        #[case] zone: &str,
        #[case] says: &str,
    ) {
        let error = Timing::of(&spec(interval, schedule, zone)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
