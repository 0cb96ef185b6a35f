//! Names and identifiers, each its own type so that none is taken for another.

use std::fmt;

macro_rules! text_id {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(pub String);

        impl $id {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $id {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $id {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

macro_rules! etcd_id {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $id(pub u64);

        impl fmt::Display for $id {
            // As etcdctl prints it, so that people can compare.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }
    };
}

text_id! {
    /// The name of a member, of its pod and of its claim; of a node.
    Name
}
text_id! {
    /// The UID of a Kubernetes object: the precondition of everything destructive.
    Uid
}
etcd_id! {
    /// etcd's own ID of a member.
    MemberId
}
etcd_id! {
    /// etcd's own ID of a cluster.
    ClusterId
}
