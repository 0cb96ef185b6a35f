//! etcd versions: what each can do, and which way leads from one to another.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A released etcd version; printed without a leading `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

/// From here on a 3.5 member can become 3.6 even if it once was a learner.
const BRIDGE_TO_3_6: Version = Version::new(3, 5, 26);

impl Version {
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch }
    }

    fn at_least(self, major: u64, minor: u64) -> bool {
        (self.major, self.minor) >= (major, minor)
    }

    fn same_minor(self, other: Version) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    pub fn before_minor_of(self, other: Version) -> bool {
        (self.major, self.minor) < (other.major, other.minor)
    }

    pub fn has_learners(self) -> bool {
        self.at_least(3, 4)
    }

    /// Knows `max-learners`; pods set it by environment, which older versions ignore.
    pub fn has_several_learners(self) -> bool {
        self.at_least(3, 6)
    }

    /// Older ones hand leadership over on SIGTERM.
    pub fn moves_leader(self) -> bool {
        self.at_least(3, 3)
    }

    pub fn has_hashes(self) -> bool {
        self.at_least(3, 3)
    }

    /// Older ones need a linearizable read on the same member before their list counts.
    pub fn lists_members_linearizably(self) -> bool {
        self.at_least(3, 5)
    }

    /// A log that was begun by `from` is read wrongly by this one.
    /// - Until 3.4 a GET of `/health` (a probe's, or `etcdctl cluster-health`) is an entry of the v2 store. 3.6 panics at it.
    /// - Until 3.4 the database notes how far it is only when keys are written. 3.5 (seen with 3.5.35) then takes members
    ///   that were added later for removed ones; it goes on, but as 3.6 it turns them away, and quorum is gone.
    pub fn misreads_log_of(self, from: Version) -> bool {
        [Version::new(3, 5, 0), Version::new(3, 6, 0)].iter().any(|first| from < *first && *first <= self)
    }

    /// These can corrupt data.
    fn is_unsafe(self) -> bool {
        self.same_minor(Version::new(3, 5, 0)) && self.patch <= 2
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a version is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{0:?} is no etcd version: write it like 3.5.16 or v3.5.16")]
    Unreadable(String),
    #[error("etcd {0} is not known to this operator: use one of {1}")]
    UnknownMinor(Version, HopTable),
    #[error("etcd {0} can corrupt data: use 3.5.3 or later")]
    Unsafe(Version),
    #[error(
        "etcd cannot go back from {from} to {to} once every member runs {from}: set the version to {from}, or restore a backup into a new cluster"
    )]
    Downgrade { from: Version, to: Version },
    #[error(
        "the way from {from} to {to} leads through {needs}, and the version table has none: add it, or upgrade to a version in between first"
    )]
    NoHop { from: Version, to: Version, needs: String },
    #[error(
        "a backup of etcd {backup} cannot be restored into a cluster of {to}, which is older: set the cluster's version to {backup} or later"
    )]
    NewerBackup { backup: Version, to: Version },
}

impl FromStr for Version {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match semver::Version::parse(text.strip_prefix('v').unwrap_or(text)) {
            Ok(version) if version.pre.is_empty() && version.build.is_empty() => {
                Ok(Self::new(version.major, version.minor, version.patch))
            }
            _ => Err(Refusal::Unreadable(text.to_owned())),
        }
    }
}

/// The patch version through which each known minor is passed, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HopTable(Vec<Version>);

impl Default for HopTable {
    fn default() -> Self {
        Self(vec![
            Version::new(3, 1, 20),
            Version::new(3, 2, 32),
            Version::new(3, 3, 27),
            Version::new(3, 4, 37),
            Version::new(3, 5, 35),
            Version::new(3, 6, 16),
        ])
    }
}

impl fmt::Display for HopTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minors: Vec<_> = self.0.iter().map(|v| format!("{}.{}", v.major, v.minor)).collect();
        f.write_str(&minors.join(", "))
    }
}

/// `3.4.30,3.5.28`: the default table with these in place of their minors' own.
impl FromStr for HopTable {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut table = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            table.set(part.parse()?);
        }
        Ok(table)
    }
}

impl HopTable {
    fn set(&mut self, version: Version) {
        self.0.retain(|known| !known.same_minor(version));
        self.0.push(version);
        self.0.sort_unstable();
    }

    fn of_minor(&self, major: u64, minor: u64) -> Option<Version> {
        self.0.iter().copied().find(|known| (known.major, known.minor) == (major, minor))
    }

    /// Whether this version may run at all.
    pub fn accept(&self, version: Version) -> Result<Version, Refusal> {
        if version.is_unsafe() {
            return Err(Refusal::Unsafe(version));
        }
        match self.of_minor(version.major, version.minor) {
            Some(_) => Ok(version),
            None => Err(Refusal::UnknownMinor(version, self.clone())),
        }
    }

    /// The next version on the way, one minor at a time; `to` itself where etcd can go there at once.
    /// Within a minor every direction is open.
    pub fn next(&self, from: Version, to: Version) -> Result<Version, Refusal> {
        self.accept(to)?;
        if from.same_minor(to) {
            return Ok(to);
        }
        if to < from {
            return Err(Refusal::Downgrade { from, to });
        }
        let refused = |needs: String| Refusal::NoHop { from, to, needs };
        if from.same_minor(BRIDGE_TO_3_6) && from < BRIDGE_TO_3_6 {
            return self.bridge().ok_or_else(|| refused(format!("{BRIDGE_TO_3_6} or later")));
        }
        let (major, minor) = (from.major, from.minor + 1);
        if (to.major, to.minor) == (major, minor) {
            return Ok(to);
        }
        self.of_minor(major, minor).ok_or_else(|| refused(format!("{major}.{minor}")))
    }

    /// The whole way, so that an impossible jump is refused before the first member is touched.
    pub fn route(&self, from: Version, to: Version) -> Result<Vec<Version>, Refusal> {
        let mut route = Vec::new();
        let mut at = from;
        while at != to {
            at = self.next(at, to)?;
            route.push(at);
        }
        Ok(route)
    }

    /// What a backup is restored on: its own minor, if the way from there to `to` is open. Of a version with patch 0 only
    /// the minor is known.
    pub fn restore_on(&self, backup: Option<Version>, to: Version) -> Result<Version, Refusal> {
        let Some(backup) = backup else { return self.accept(to) };
        if to.before_minor_of(backup) {
            return Err(Refusal::NewerBackup { backup, to });
        }
        if backup.same_minor(to) {
            return self.accept(to);
        }
        let of_minor = self.of_minor(backup.major, backup.minor);
        let on = match self.accept(backup) {
            Ok(exact) if exact.patch > 0 => exact,
            Ok(_) => of_minor.unwrap_or(backup),
            Err(refusal) => of_minor.ok_or(refusal)?,
        };
        self.route(on, to).map(|_| on)
    }

    fn bridge(&self) -> Option<Version> {
        self.of_minor(BRIDGE_TO_3_6.major, BRIDGE_TO_3_6.minor).filter(|version| *version >= BRIDGE_TO_3_6)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn v(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[rstest]
    #[case("3.3.12", "3.4.15", false)]
    #[case("3.4.15", "3.5.35", true)]
    #[case("3.5.16", "3.5.35", false)]
    #[case("3.5.35", "3.6.16", true)]
    #[case("3.6.4", "3.6.16", false)]
    #[case("3.6.16", "3.5.35", false)]
    fn some_read_the_logs_of_others_wrongly(#[case] from: &str, #[case] to: &str, #[case] wrongly: bool) {
        assert_eq!(v(to).misreads_log_of(v(from)), wrongly);
    }

    #[rstest]
    #[case("3.5.16", Some("3.5.16"))]
    #[case("v3.5.16", Some("3.5.16"))]
    #[case("3.10.0", Some("3.10.0"))]
    #[case("", None)]
    #[case("3.5", None)]
    #[case("vv3.5.1", None)]
    #[case("3.5.16-rc.1", None)]
    #[case("3.5.16+x", None)]
    #[case("latest", None)]
    #[case(" 3.5.16", None)]
    #[case("03.5.16", None)]
    fn reads(#[case] text: &str, #[case] printed: Option<&str>) {
        assert_eq!(text.parse::<Version>().ok().map(|v| v.to_string()).as_deref(), printed);
    }

    #[test]
    fn minors_are_ordered_as_numbers() {
        assert!(v("3.10.0") > v("3.9.9"));
    }

    #[rstest]
    #[case("3.1.10", false, false, false, false)]
    #[case("3.3.12", false, false, true, false)]
    #[case("3.4.15", true, false, true, false)]
    #[case("3.5.16", true, false, true, true)]
    #[case("3.6.16", true, true, true, true)]
    #[case("4.0.0", true, true, true, true)]
    fn abilities(
        #[case] version: &str,
        #[case] learners: bool,
        #[case] several: bool,
        #[case] move_and_hash: bool,
        #[case] lists: bool,
    ) {
        let version = v(version);
        assert_eq!(
            (
                version.has_learners(),
                version.has_several_learners(),
                version.moves_leader(),
                version.has_hashes(),
                version.lists_members_linearizably()
            ),
            (learners, several, move_and_hash, move_and_hash, lists)
        );
    }

    #[rstest]
    #[case::nothing_to_do("3.5.16", "3.5.16", &[])]
    #[case::patch("3.5.16", "3.5.35", &["3.5.35"])]
    #[case::patch_back("3.5.35", "3.5.16", &["3.5.16"])]
    #[case::one_minor("3.1.10", "3.2.13", &["3.2.13"])]
    #[case::two_minors("3.4.15", "3.6.16", &["3.5.35", "3.6.16"])]
    #[case::bridge("3.5.16", "3.6.16", &["3.5.35", "3.6.16"])]
    #[case::bridge_crossed("3.5.26", "3.6.16", &["3.6.16"])]
    #[case::all("3.1.10", "3.6.16", &["3.2.32", "3.3.27", "3.4.37", "3.5.35", "3.6.16"])]
    fn routes(#[case] from: &str, #[case] to: &str, #[case] through: &[&str]) {
        let route = HopTable::default().route(v(from), v(to)).unwrap();
        assert_eq!(route, through.iter().map(|t| v(t)).collect::<Vec<_>>());
    }

    #[rstest]
    #[case::downgrade("3.6.16", "3.5.35", "cannot go back from 3.6.16 to 3.5.35")]
    #[case::unknown("3.6.16", "3.7.0", "3.7.0 is not known to this operator: use one of 3.1, 3.2")]
    #[case::two("3.6.16", "2.3.8", "2.3.8 is not known")]
    #[case::corrupting("3.4.15", "3.5.2", "3.5.2 can corrupt data")]
    fn refuses(#[case] from: &str, #[case] to: &str, #[case] words: &str) {
        let refusal = HopTable::default().route(v(from), v(to)).unwrap_err().to_string();
        assert!(refusal.contains(words), "{refusal}");
    }

    #[rstest]
    #[case::unknown(None, "3.6.16", Ok("3.6.16"))]
    #[case::same(Some("3.5.16"), "3.5.16", Ok("3.5.16"))]
    #[case::same_minor(Some("3.5.35"), "3.5.16", Ok("3.5.16"))]
    #[case::older(Some("3.4.15"), "3.6.16", Ok("3.4.15"))]
    #[case::only_the_minor_is_known(Some("3.4.0"), "3.6.16", Ok("3.4.37"))]
    #[case::made_by_one_that_corrupts(Some("3.5.1"), "3.6.16", Ok("3.5.35"))]
    #[case::newer(
        Some("3.6.4"),
        "3.5.35",
        Err("backup of etcd 3.6.4 cannot be restored into a cluster of 3.5.35")
    )]
    #[case::ancient(Some("2.3.8"), "3.5.35", Err("2.3.8 is not known"))]
    fn a_backup_is_restored_on_its_own_minor(
        #[case] backup: Option<&str>,
        #[case] to: &str,
        #[case] on: Result<&str, &str>,
    ) {
        let found = HopTable::default().restore_on(backup.map(v), v(to));
        match (found, on) {
            (Ok(found), Ok(on)) => assert_eq!(found, v(on)),
            (Err(refusal), Err(words)) => assert!(refusal.to_string().contains(words), "{refusal}"),
            (found, on) => panic!("{found:?} is not {on:?}"),
        }
    }

    #[test]
    fn the_table_is_overridable() {
        let table: HopTable = "3.5.28, 3.7.1".parse().unwrap();
        assert_eq!(table.route(v("3.4.15"), v("3.7.2")).unwrap(), [v("3.5.28"), v("3.6.16"), v("3.7.2")]);
        assert!("3.5".parse::<HopTable>().is_err());
    }

    #[test]
    fn an_old_bridge_is_no_bridge() {
        let table: HopTable = "3.5.16".parse().unwrap();
        let refusal = table.route(v("3.4.15"), v("3.6.16")).unwrap_err().to_string();
        assert!(refusal.contains("leads through 3.5.26 or later"), "{refusal}");
    }
}
