//! Real Kubernetes on one machine, and the hands that break it.
//!
//! [`Lab::up`] brings a lab up or joins one that runs; `kit` is what tests are written with.

mod addons;
mod cgroup;
pub mod control;
mod down;
mod error;
mod faults;
pub mod images;
pub mod kit;
pub mod layout;
mod net;
mod node;
pub mod packages;
mod pki;
mod preflight;
mod process;
pub mod programs;
pub mod state;
pub mod status;
mod up;
pub mod wait;

use std::path::{Path, PathBuf};

pub use down::down;
pub use error::{Error, Result};
pub use faults::Slow;
use images::{Images, Reference};
use layout::Layout;
pub use net::within;
pub use preflight::root as need_root;
use programs::{Programs, default_cache};
pub use up::Options;

/// A lab that runs.
pub struct Lab {
    pub layout: Layout,
    pub programs: Programs,
}

impl Lab {
    /// Brings up what is missing of the lab, and gives it once everything answers.
    pub async fn up(options: &Options) -> Result<Self> {
        up::up(options).await
    }

    pub fn existing(name: &str) -> Result<Self> {
        Ok(Self { layout: state::existing(name)?, programs: Programs::new(&default_cache()?) })
    }

    /// Makes the image of a program from its binary, under the names that manifests use. Nodes forget
    /// what they have under these names: a build made a moment ago must not lose to the one before it.
    pub fn publish(&self, binary: &Path) -> Result<Vec<Reference>> {
        let image = images::of_binary(binary)?;
        let names = image.names.clone();
        Images::new(&default_cache()?).publish(&[image], &self.layout.registry_store())?;
        for node in node::Node::all(&self.layout) {
            node.forget(&names)?;
        }
        Ok(names)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<kube::Client> {
        up::client(&self.layout).await
    }
}
