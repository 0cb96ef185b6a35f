//! What the containers may do: as little as etcd can live with.

use api::v1beta2::PodPolicy;
use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

/// Any user will do that is not root: etcd writes to its volumes alone, and those belong to this group.
const USER: i64 = 1000;

/// What the spec says, in full; else not root, and the runtime's seccomp profile.
pub fn of_pod(pod: &PodPolicy) -> PodSecurityContext {
    pod.security_context.clone().unwrap_or_else(|| PodSecurityContext {
        fs_group: Some(USER),
        // Going through every file of a large volume at each start would delay the member.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        run_as_group: Some(USER),
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    })
}

pub fn of_container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
