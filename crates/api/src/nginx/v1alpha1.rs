//! The first version: one port.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{DEFAULT_PORT, DEFAULT_REPLICAS, NginxOperatorStatus};

/// What shall run. The operator makes it so, and keeps it so.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operator.example.com",
    version = "v1alpha1",
    kind = "NginxOperator",
    plural = "nginxoperators",
    singular = "nginxoperator",
    shortname = "nginx",
    namespaced,
    status = "NginxOperatorStatus",
    derive = "PartialEq",
    doc = "An nginx deployment: the operator deploys it, keeps it running and reports its health.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas", description = "Pods asked for"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas", description = "Pods that answer"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port"),
    printcolumn(
        name = "Healthy",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='OperandReady')].status",
        description = "Whether the operand is healthy"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("metadata.name may have at most 63 characters: a Service and a label are named after it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name must begin with a letter and hold only a-z, 0-9 and -, such as my-nginx: a Service is named after it"),
)]
pub struct NginxOperatorSpec {
    /// The port that nginx listens on and that its Service has.
    #[serde(default = "default_port")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 65535").message("port must be 1 to 65535, such as 80"))]
    pub port: i32,

    /// How many pods shall run. 0 is allowed and means none; `kubectl scale` works too.
    #[serde(default = "default_replicas")]
    #[x_kube(validation = Rule::new("self >= 0").message("replicas must be 0 or more, such as 1"))]
    pub replicas: i32,

    /// Any text of at most 1,024 characters. A change of it replaces every pod, one after the other, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub force_redeploy: Option<String>,

    /// The image to run; an edit upgrades or takes back the operand. Where it is missing, the operator's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[^\\\\s]+$')").message("image must be the name of an image, such as nginx:1.27"))]
    pub image: Option<String>,
}

impl Default for NginxOperatorSpec {
    fn default() -> Self {
        Self { port: DEFAULT_PORT, replicas: DEFAULT_REPLICAS, force_redeploy: None, image: None }
    }
}

fn default_port() -> i32 {
    DEFAULT_PORT
}

fn default_replicas() -> i32 {
    DEFAULT_REPLICAS
}
