//! Names of images.

use std::{fmt, str::FromStr};

use super::ImageError;

/// An image's name in full: `nginx` is `docker.io/library/nginx:latest`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: String,
}

impl Reference {
    /// The path in a registry. The lab's one registry stands in for all, and a container runtime asks a stand-in
    /// without the host's name: `quay.io/a/b` and `gcr.io/a/b` are the same image there.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for Reference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (text, "latest"),
        };
        // As Docker tells a host from a folder: it has a dot or a port, or is localhost.
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path.to_owned()),
            Some(_) => ("docker.io", name.to_owned()),
            None => ("docker.io", format!("library/{name}")),
        };
        let part_is_good = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
        };
        let tag_is_good = (1..=128).contains(&tag.len())
            && !tag.starts_with(['.', '-'])
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if host.is_empty() || !path.split('/').all(part_is_good) || !tag_is_good {
            return Err(ImageError::Reference(text.to_owned()));
        }
        Ok(Self { host: host.to_owned(), repository: path, tag: tag.to_owned() })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.host, self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_docker_io() {
        for (short, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("busybox:1.28.0-glibc", "docker.io/library/busybox:1.28.0-glibc"),
            ("lab/pause:1", "docker.io/lab/pause:1"),
            ("quay.io/coreos/etcd", "quay.io/coreos/etcd:latest"),
            ("localhost:5000/a/b/c:v1", "localhost:5000/a/b/c:v1"),
            ("localhost/a", "localhost/a:latest"),
        ] {
            assert_eq!(short.parse::<Reference>().unwrap().to_string(), full);
        }
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in ["", "Nginx", "a/../b", "nginx:", "nginx:a b", "quay.io/", "a@sha256:0", "/etc/passwd"] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }
}
