//! Variables of etcd's environment that nobody may set.

/// Some of them, and why.
#[derive(Clone, Copy, Debug)]
pub struct RefusedEnv {
    names: &'static [&'static str],
    prefixes: &'static [&'static str],
    pub message: &'static str,
}

pub const REFUSED_ENV: [RefusedEnv; 2] = [OPERATORS, DANGEROUS];

pub(super) const OPERATORS: RefusedEnv = RefusedEnv {
    names: &[
        "ETCD_NAME",
        "ETCD_DATA_DIR",
        "ETCD_WAL_DIR",
        "ETCD_MAX_LEARNERS",
        "ETCD_CONFIG_FILE",
        "ETCD_PROXY",
        "INITIAL_CLUSTER",
        "INITIAL_CLUSTER_STATE",
    ],
    prefixes: &["ETCD_INITIAL_", "ETCD_LISTEN_", "ETCD_ADVERTISE_", "ETCD_DISCOVERY"],
    message: "the operator sets the name, directories, URLs and initial members of each member: take out INITIAL_*, \
              ETCD_INITIAL_*, ETCD_LISTEN_*, ETCD_ADVERTISE_*, ETCD_DISCOVERY*, ETCD_NAME, ETCD_DATA_DIR, ETCD_WAL_DIR, \
              ETCD_MAX_LEARNERS, ETCD_CONFIG_FILE and ETCD_PROXY",
};

pub(super) const DANGEROUS: RefusedEnv = RefusedEnv {
    names: &["ETCD_FORCE_NEW_CLUSTER", "ETCD_STRICT_RECONFIG_CHECK"],
    prefixes: &["ETCD_UNSAFE_"],
    message: "ETCD_FORCE_NEW_CLUSTER, ETCD_STRICT_RECONFIG_CHECK and ETCD_UNSAFE_* can lose data: take them out; to bring \
              a lost cluster back, create an EtcdRestore",
};

impl RefusedEnv {
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The same for the API server, of a list of variables.
    pub(super) fn rule(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| format!("'{name}'")).collect();
        let prefixes = self.prefixes.iter().map(|prefix| format!("!env.name.startsWith('{prefix}')"));
        let none: Vec<_> =
            [format!("!(env.name in [{}])", names.join(", "))].into_iter().chain(prefixes).collect();
        format!("self.all(env, {})", none.join(" && "))
    }
}
