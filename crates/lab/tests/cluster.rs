//! A lab is a real cluster: pods pull, talk, keep data, and nothing gets out. On the shared lab.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::watcher;
use lab::images::{Images, Recipe};
use lab::kit::{TestNamespace, gone, shared_lab, wait_for, wait_for_all};
use lab::programs::Programs;
use lab::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const LIMIT: Duration = Duration::from_mins(2);

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// A pod with a shell that stays, on the given node.
fn sleeper(name: &str, node: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{nodeName: {node}, \
         terminationGracePeriodSeconds: 0, containers: [{{name: c, image: 'busybox:1.28.0-glibc', \
         command: [sh, -c, 'mkdir -p /tmp/w && hostname > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w']}}]}}}}"
    )
}

/// In commands, `timeout` stands before wget: Debian 12's `wget -T` crashes.
async fn exec(test: &TestNamespace<'_>, pod: &str, command: &str) -> lab::Result<String> {
    test.kubectl(&["exec", pod, "--", "sh", "-c", command]).await
}

/// Where a machine that is no part of any lab answers, in a namespace of the test's own: the host reaches it, and it has a way
/// back to everybody.
const OUTSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 80);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

struct Outside {
    netns: String,
    /// Who was let in.
    visitors: UnboundedReceiver<IpAddr>,
}

impl Outside {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let (netns, link) = (format!("outside{}", std::process::id()), format!("out{}", std::process::id()));
        ip(&format!("netns add {netns}"))?;
        let (tell, visitors) = unbounded_channel();
        let outside = Self { netns: netns.clone(), visitors };
        ip(&format!("link add {link} type veth peer name eth0 netns {netns}"))?;
        ip(&format!("addr add {HOST}/30 dev {link}"))?;
        ip(&format!("link set {link} up"))?;
        ip(&format!("-n {netns} addr add {}/30 dev eth0", OUTSIDE.ip()))?;
        ip(&format!("-n {netns} link set eth0 up"))?;
        ip(&format!("-n {netns} route add default via {HOST}"))?;
        let listener = lab::within(&netns, || std::net::TcpListener::bind(OUTSIDE))??;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        tokio::spawn(async move {
            while let Ok((mut visitor, from)) = listener.accept().await {
                if tell.send(from.ip()).is_err() || answer(&mut visitor).await.is_err() {
                    return;
                }
            }
        });
        Ok(outside)
    }
}

async fn answer(visitor: &mut TcpStream) -> std::io::Result<()> {
    let _request = visitor.read(&mut [0; 1024]).await?;
    visitor.write_all(b"HTTP/1.0 200 OK\r\n\r\noutside").await?;
    visitor.shutdown().await
}

/// What the machine outside says to somebody on the host.
async fn asked_from_the_host() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(OUTSIDE).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn ip(words: &str) -> std::io::Result<()> {
    let done = std::process::Command::new("ip").args(words.split(' ')).status()?;
    if done.success() { Ok(()) } else { Err(std::io::Error::other(format!("ip {words}: {done}"))) }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Err(error) = ip(&format!("netns del {}", self.netns)) {
            eprintln!("{error}");
        }
    }
}

#[tokio::test]
async fn pods_reach_each_other_a_service_by_name_s3_and_nothing_outside() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "net").await.unwrap();
    test.run(async |test| {
        for (pod, node) in [("one", "node1"), ("two", "node2")] {
            test.kubectl_with_input(&["apply", "-f", "-"], &sleeper(pod, node)).await?;
        }
        test.kubectl(&["expose", "pod", "two", "--port=80", "--target-port=8080"]).await?;
        let pods: Api<Pod> = test.api();
        wait_for(&pods, "one", LIMIT, "to be Ready", ready).await?;
        let two = wait_for(&pods, "two", LIMIT, "to be Ready", ready).await?;
        let ip = two.status.and_then(|s| s.pod_ip).unwrap();

        let direct = exec(test, "one", &format!("timeout 5 wget -qO- http://{ip}:8080")).await?;
        assert_eq!(direct.trim(), "two");
        until("the Service", LIMIT, async || {
            Ok(exec(test, "one", "timeout 2 wget -qO- http://two").await.map_err(|e| e.to_string()))
        })
        .await?;
        // Without keys the S3 server refuses, which shows that it was reached.
        let s3 =
            exec(test, "one", &format!("timeout 5 wget -O- {} 2>&1 || true", lab.layout.s3_url())).await?;
        assert!(s3.contains("403"), "{s3}");

        let mut outside = Outside::new()?;
        let answer = asked_from_the_host().await?;
        assert!(answer.ends_with("outside"), "{answer}");
        let tried = format!("timeout 3 wget -qO- http://{OUTSIDE} 2>&1 || echo unreachable");
        for pod in ["one", "two"] {
            let tried = exec(test, pod, &tried).await?;
            assert!(tried.contains("unreachable"), "{pod}: {tried}");
        }
        let limit = Duration::from_secs(3);
        let from_node =
            lab::within(&lab.layout.node_netns(1), || std::net::TcpStream::connect_timeout(&OUTSIDE, limit))?;
        assert!(from_node.is_err(), "a node reaches it");
        let visitors: Vec<IpAddr> = std::iter::from_fn(|| outside.visitors.try_recv().ok()).collect();
        assert_eq!(visitors, [HOST], "nobody but the host");
        drop(outside);
        let node_routes =
            std::process::Command::new("ip").args(["-n", &lab.layout.node_netns(1), "route"]).output()?;
        assert!(!String::from_utf8_lossy(&node_routes.stdout).contains("default"));
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_test_that_fails_says_where_what_was_there_is() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "bundle").await.unwrap();
    let folder = lab::kit::bundle_root().join(&test.name);
    let failed = test.run(async |test| {
        test.kubectl(&[
            "run",
            "talks",
            "--image=busybox:1.28.0-glibc",
            "--",
            "sh",
            "-c",
            "echo said; sleep 600",
        ])
        .await?;
        wait_for(&test.api::<Pod>(), "talks", LIMIT, "to be Ready", ready).await?;
        Err::<(), _>(lab::Error::usage("as it shall"))
    });
    let message = failed.await.unwrap_err();
    assert!(message.starts_with("as it shall"), "{message}");
    assert!(message.contains(&folder.display().to_string()), "{message}");
    for (file, says) in [
        ("pods.json", "\"talks\""),
        ("events.txt", "talks  Scheduled"),
        ("talks.talks.log", "said"),
        ("lab-apiserver.log", ".go:"),
        ("lab-node1-kubelet.log", ".go:"),
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| error.to_string());
        assert!(text.contains(says), "{file}: {text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn pods_outweigh_what_else_runs_on_the_machine() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let group = lab.layout.cgroup();
    let files = [format!("cpu/{group}/cpu.shares"), format!("{group}/cpu.weight")];
    let weights: Vec<(&str, String)> = files
        .iter()
        .filter_map(|file| {
            let weight = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
            Some((file.as_str(), weight.trim().to_owned()))
        })
        .collect();
    let heavy = matches!(weights.as_slice(), [(_, weight)] if weight == "16384" || weight == "1600");
    assert!(heavy, "one hierarchy has the processor, and 16 times the weight of others: {weights:?}");
}

#[tokio::test]
async fn the_books_images_start_unedited_and_a_missing_one_fails_as_in_real_life() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "images").await.unwrap();
    test.run(async |test| {
        let pods: Api<Pod> = test.api();
        test.kubectl(&["run", "web", "--image=nginx:latest"]).await?;
        test.kubectl(&["run", "etcd", "--image=quay.io/coreos/etcd", "--", "/usr/local/bin/etcd"]).await?;
        test.kubectl(&["run", "busybox", "--image=busybox:1.28.0-glibc", "--", "sleep", "600"]).await?;
        test.kubectl(&["run", "missing", "--image=quay.io/coreos/etcd:v9.9.9"]).await?;
        for pod in ["web", "etcd", "busybox"] {
            wait_for(&pods, pod, LIMIT, "to be Ready", ready).await?;
        }
        let version = test.kubectl(&["exec", "etcd", "--", "/bin/sh", "-c", "etcd --version"]).await?;
        assert!(version.contains("3.3.12"), "untagged is the book's newest: {version}");
        wait_for(&pods, "missing", LIMIT, "to fail to pull", |pod| {
            let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
            let waiting = statuses.filter_map(|s| s.state.as_ref()?.waiting.as_ref()?.reason.clone());
            waiting.into_iter().any(|r| r == "ErrImagePull" || r == "ImagePullBackOff")
        })
        .await?;
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn every_etcd_version_runs_and_only_the_old_images_have_a_shell() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "etcds").await.unwrap();
    test.run(async |test| {
        let pods: Api<Pod> = test.api();
        for version in lab::programs::EtcdVersion::ALL {
            let name = format!("etcd-{}", version.as_str().replace('.', "-"));
            let image = format!("--image=quay.io/coreos/etcd:v{version}");
            test.kubectl(&[
                "run",
                &name,
                &image,
                "--restart=Never",
                "--command",
                "--",
                "/usr/local/bin/etcd",
                "--version",
            ])
            .await?;
            let shell = format!("{name}-sh");
            test.kubectl(&[
                "run",
                &shell,
                &image,
                "--restart=Never",
                "--command",
                "--",
                "/bin/sh",
                "-c",
                "true",
            ])
            .await?;
            let phase = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
            wait_for(&pods, &name, LIMIT, "to have printed its version", |p| phase(p) == "Succeeded").await?;
            let printed = test.kubectl(&["logs", &name]).await?;
            assert!(printed.contains(version.as_str()), "{version}: {printed}");
            let ended = wait_for(&pods, &shell, LIMIT, "to end", |p| {
                ["Succeeded", "Failed"].contains(&phase(p).as_str())
            })
            .await?;
            assert_eq!(phase(&ended) == "Succeeded", version.as_str() < "3.5", "{version}");
        }
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn volumes_bind_keep_their_data_stay_on_their_node_and_go_with_their_claim() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "volumes").await.unwrap();
    test.run(async |test| {
        let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
                     resources: {requests: {storage: 1Mi}}}}";
        let user = "{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 0, \
                    volumes: [{name: d, persistentVolumeClaim: {claimName: data}}], containers: [{name: c, \
                    image: 'busybox:1.28.0-glibc', command: [sleep, '600'], volumeMounts: [{name: d, mountPath: /d}]}]}}";
        test.kubectl_with_input(&["apply", "-f", "-"], claim).await?;
        test.kubectl_with_input(&["apply", "-f", "-"], user).await?;
        let pods: Api<Pod> = test.api();
        let first = wait_for(&pods, "user", LIMIT, "to be Ready", ready).await?;
        exec(test, "user", "echo kept > /d/file").await?;
        let dir = lab.volume_dir(&first, "d")?;
        let node = first.spec.and_then(|s| s.node_name).unwrap_or_default();
        assert!(dir.join("file").exists());
        // Another node does not see that folder at all.
        let other = lab.layout.node_names().find(|n| *n != node).unwrap_or_default();
        let peek = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: peek}}, spec: {{nodeName: {other}, terminationGracePeriodSeconds: 0, \
             volumes: [{{name: h, hostPath: {{path: {}}}}}], containers: [{{name: c, image: 'busybox:1.28.0-glibc', \
             command: [sleep, '600'], volumeMounts: [{{name: h, mountPath: /h}}]}}]}}}}",
            lab.layout.root.display()
        );
        test.kubectl_with_input(&["apply", "-f", "-"], &peek).await?;
        wait_for(&pods, "peek", LIMIT, "to be Ready", ready).await?;
        assert_eq!(exec(test, "peek", &format!("ls /h/{node} | wc -l")).await?.trim(), "0");

        test.kubectl(&["delete", "pod", "user", "--wait"]).await?;
        test.kubectl_with_input(&["apply", "-f", "-"], user).await?;
        wait_for(&pods, "user", LIMIT, "to be Ready again", ready).await?;
        assert_eq!(exec(test, "user", "cat /d/file").await?.trim(), "kept");

        let claims: Api<PersistentVolumeClaim> = test.api();
        let volume = claims.get("data").await?.spec.and_then(|s| s.volume_name).unwrap_or_default();
        test.kubectl(&["delete", "pod", "user", "peek", "--wait"]).await?;
        test.kubectl(&["delete", "pvc", "data"]).await?;
        gone(&Api::<PersistentVolume>::all(test.client.clone()), &volume, LIMIT).await?;
        assert!(!dir.exists(), "{}", dir.display());
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

/// Part B of the tutorial.
#[tokio::test]
async fn the_static_web_server_scales_to_three_and_replaces_a_deleted_pod() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "staticweb").await.unwrap();
    test.run(async |test| {
        let deployments: Api<Deployment> = test.api();
        let available =
            |n| move |d: &Deployment| d.status.as_ref().and_then(|s| s.available_replicas) == Some(n);
        test.kubectl(&[
            "apply",
            "-f",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../example/staticweb/staticweb.yaml"),
        ])
        .await?;
        wait_for(&deployments, "staticweb", LIMIT, "to have a pod", available(1)).await?;
        test.kubectl(&["scale", "deployment", "staticweb", "--replicas=3"]).await?;
        wait_for(&deployments, "staticweb", LIMIT, "to have three pods", available(3)).await?;

        let pods: Api<Pod> = test.api();
        let lost = pods.list(&ListParams::default()).await?.items[0].name_any();
        test.kubectl(&["delete", "pod", &lost]).await?;
        wait_for_all(&pods, watcher::Config::default(), LIMIT, "a new pod", |now| {
            now.len() == 3 && now.iter().all(|pod| pod.name_any() != lost)
        })
        .await?;
        wait_for(&deployments, "staticweb", LIMIT, "to have three pods again", available(3)).await?;
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn it_is_a_real_cluster_with_an_administrator() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "admin").await.unwrap();
    test.run(async |test| {
        let version = test.kubectl(&["version"]).await?;
        assert!(
            version.contains(&format!("Server Version: v{}", lab::programs::KUBERNETES_VERSION)),
            "{version}"
        );
        let role = test.kubectl(&["describe", "clusterrole", "cluster-admin"]).await?;
        assert!(role.contains("*.*"), "{role}");
        let migrations = test.kubectl(&["api-resources", "--api-group=storagemigration.k8s.io"]).await?;
        assert!(migrations.contains("StorageVersionMigration"), "{migrations}");
        let nodes: Api<Node> = Api::all(test.client.clone());
        assert_eq!(nodes.list(&ListParams::default()).await?.items.len(), 3);
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_archive_is_loaded_listed_and_run() {
    let (lab, _turn) = shared_lab().await.unwrap();
    let test = TestNamespace::new(lab, "load").await.unwrap();
    test.run(async |test| {
        let command = |arguments: &[&str]| {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_lab"))
                .args(arguments)
                .args(["--name", &lab.layout.name])
                .output()?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            Ok::<_, std::io::Error>(said)
        };
        let cache = lab::programs::default_cache()?;
        let folder = tempfile::tempdir()?;
        let archive = folder.path().join("tool.tar");
        let mut tool = Recipe::Busybox.image(&Programs::new(&cache))?;
        let reference = format!("example.com/team/tool:{}", test.name);
        tool.names = vec![reference.parse()?];
        Images::new(&cache.join("images")).export(&tool, &archive)?;

        assert!(!command(&["images"])?.contains(&test.name));
        let loaded = command(&["load", &archive.display().to_string()])?;
        assert!(loaded.contains(&reference), "{loaded}");
        let listed = command(&["images"])?;
        assert!(
            listed.lines().any(|line| line.contains("team/tool") && line.contains(&test.name)),
            "{listed}"
        );
        test.kubectl(&["run", "tool", &format!("--image={reference}"), "--", "sleep", "600"]).await?;
        wait_for(&test.api::<Pod>(), "tool", LIMIT, "to be Ready", ready).await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .await
    .unwrap();
}
