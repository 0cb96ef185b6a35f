//! The second version: several ports, each with a name.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{DEFAULT_PORT, DEFAULT_PORT_NAME, DEFAULT_REPLICAS, NginxOperatorStatus};

/// What shall run. The operator makes it so, and keeps it so.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "operator.example.com",
    version = "v1alpha2",
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
    printcolumn(name = "Ports", type_ = "string", json_path = ".spec.ports[*].port"),
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
    /// The ports that nginx listens on and that its Service has. v1alpha1 shows the first.
    #[serde(default = "default_ports")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.name == b.name))")
        .message("each of ports must have a name of its own, such as http and admin"))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.port == b.port))")
        .message("each of ports must have a number of its own, such as 80 and 8080"))]
    pub ports: Vec<Port>,

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

/// One port of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct Port {
    /// The name of the port in the Service and in the pods.
    #[schemars(length(min = 1, max = 15))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+(-[a-z0-9]+)*$') && self.matches('.*[a-z].*')")
        .message("name of a port must hold only a-z, 0-9 and single -, and at least one letter, such as http"))]
    pub name: String,
    /// Its number.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 65535").message("port must be 1 to 65535, such as 80"))]
    pub port: i32,
}

impl Default for NginxOperatorSpec {
    fn default() -> Self {
        Self { ports: default_ports(), replicas: DEFAULT_REPLICAS, force_redeploy: None, image: None }
    }
}

fn default_ports() -> Vec<Port> {
    vec![Port { name: DEFAULT_PORT_NAME.to_owned(), port: DEFAULT_PORT }]
}

fn default_replicas() -> i32 {
    DEFAULT_REPLICAS
}
