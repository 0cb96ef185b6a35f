use domain::Version;

pub struct Capabilities {
    pub learners: bool,
    pub move_leader: bool,
    pub hash_kv: bool,
}

impl Capabilities {
    pub fn of(version: Version) -> Self {
        let from = |minor| version >= Version::new(3, minor, 0);
        Self { learners: from(4), move_leader: from(3), hash_kv: from(3) }
    }
}
