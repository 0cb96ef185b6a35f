//! The hands that break things really break them, and what they broke can be mended. Alone on the shared lab.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use lab::kit::{TestNamespace, lab_alone, wait_for};
use lab::status::Health;
use lab::wait::until;
use lab::{Lab, Slow};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_mins(2);

fn condition(conditions: &[(String, String)], kind: &str, status: &str) -> bool {
    conditions.iter().any(|(t, s)| t == kind && s == status)
}

fn node_is(node: &Node, status: &[&str]) -> bool {
    let all = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let all: Vec<_> = all.map(|c| (c.type_.clone(), c.status.clone())).collect();
    status.iter().any(|s| condition(&all, "Ready", s))
}

fn ready(pod: &Pod) -> bool {
    let all = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    condition(&all.map(|c| (c.type_.clone(), c.status.clone())).collect::<Vec<_>>(), "Ready", "True")
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()).map(|s| s.restart_count).sum()
}

/// A web server on a node, which says its name.
async fn server(test: &TestNamespace<'_>, name: &str, node: &str) -> lab::Result<Pod> {
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: {node}, terminationGracePeriodSeconds: 0, \
         volumes: [{{name: d, emptyDir: {{}}}}], containers: [{{name: c, image: 'busybox:1.28.0-glibc', \
         volumeMounts: [{{name: d, mountPath: /d}}], \
         command: [sh, -c, 'echo served-by-$(hostname) > /d/index.html && exec httpd -f -p 8080 -h /d']}}]}}}}"
    );
    test.kubectl_with_input(&["apply", "-f", "-"], &pod).await?;
    wait_for(&test.api(), name, LIMIT, "to be Ready", ready).await
}

async fn reaches(test: &TestNamespace<'_>, from: &str, to: &Pod) -> bool {
    let ip = to.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_default();
    let get = format!("timeout 2 wget -qO- http://{ip}:8080");
    test.kubectl(&["exec", from, "--", "sh", "-c", &get]).await.is_ok()
}

async fn until_reaches(test: &TestNamespace<'_>, from: &str, to: &Pod, wanted: bool) -> lab::Result<()> {
    until(&format!("{from} reaches the other: {wanted}"), LIMIT, async || {
        Ok((reaches(test, from, to).await == wanted).then_some(()).ok_or("not so"))
    })
    .await
}

#[tokio::test]
async fn a_cut_node_turns_not_ready_and_comes_back_when_healed() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let nodes: Api<Node> = Api::all(lab.client().await.unwrap());
    lab.cut_node("node3").unwrap();
    let lost = wait_for(&nodes, "node3", LIMIT, "to be lost", |n| node_is(n, &["Unknown", "False"])).await;
    lab.heal_node("node3").unwrap();
    lost.unwrap();
    lab.node_ready("node3", LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_killed_nodes_pods_come_back_after_its_start() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "kill").await.unwrap();
    test.run(async |test| {
        server(test, "victim", "node3").await?;
        lab.kill_node("node3")?;
        let killed = reaches(test, "victim", &Pod::default()).await;
        assert!(!killed, "nothing can be run on a node without power");
        lab.start_node("node3").await?;
        lab.node_ready("node3", LIMIT).await?;
        let back =
            wait_for(&test.api::<Pod>(), "victim", LIMIT, "to run again", |p| ready(p) && restarts(p) > 0)
                .await?;
        assert_eq!(restarts(&back), 1);
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn containers_of_a_node_that_is_stopped_end_in_good_order() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "stop").await.unwrap();
    test.run(async |test| {
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: tidy}, spec: {nodeName: node3, terminationGracePeriodSeconds: 0, \
                   volumes: [{name: d, emptyDir: {}}], containers: [{name: c, image: 'busybox:1.28.0-glibc', \
                   volumeMounts: [{name: d, mountPath: /d}], \
                   command: [sh, -c, 'trap \"sleep 2; touch /d/tidy; exit\" TERM; while :; do sleep 1; done']}]}}";
        test.kubectl_with_input(&["apply", "-f", "-"], pod).await?;
        let tidy = wait_for(&test.api(), "tidy", LIMIT, "to be Ready", ready).await?;
        let file = lab.volume_dir(&tidy, "d")?.join("tidy");
        assert!(!file.exists());
        lab.stop_node("node3")?;
        assert!(file.exists(), "it had no time for {}", file.display());
        lab.start_node("node3").await?;
        lab.node_ready("node3", LIMIT).await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_a_test_left_broken_the_next_one_finds_whole() {
    let (lab, turn) = lab_alone().await.unwrap();
    lab.kill_node("node3").unwrap();
    lab.pause_api_server().unwrap();
    drop(turn);
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "whole").await.unwrap();
    test.run(async |test| server(test, "again", "node3").await.map(drop)).await.unwrap();
}

#[tokio::test]
async fn two_nodes_stop_hearing_each_other_while_a_third_hears_both() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "between").await.unwrap();
    test.run(async |test| {
        let (one, two, three) = tokio::try_join!(
            server(test, "one", "node1"),
            server(test, "two", "node2"),
            server(test, "three", "node3")
        )?;
        lab.cut_between("node1", "node2")?;
        until_reaches(test, "one", &two, false).await?;
        assert!(!reaches(test, "two", &one).await);
        assert!(
            reaches(test, "three", &one).await
                && reaches(test, "three", &two).await
                && reaches(test, "one", &three).await
        );
        lab.heal_between("node1", "node2")?;
        until_reaches(test, "one", &two, true).await
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_slow_link_takes_longer_and_is_quick_again_after() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "slow").await.unwrap();
    test.run(async |test| {
        let two = server(test, "two", "node2").await?;
        server(test, "one", "node1").await?;
        test.kubectl(&["exec", "two", "--", "dd", "if=/dev/zero", "of=/d/big", "bs=1k", "count=200"]).await?;
        let ip = two.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_default();
        let fetch = async || {
            let started = std::time::Instant::now();
            test.kubectl(&[
                "exec",
                "one",
                "--",
                "wget",
                "-qO",
                "/dev/null",
                &format!("http://{ip}:8080/big"),
            ])
            .await?;
            Ok::<_, lab::Error>(started.elapsed())
        };
        let quick = fetch().await?;
        lab.slow_node("node2", Slow { kbit_per_second: 512, loss_percent: 1 })?;
        let slow = fetch().await;
        lab.unslow_node("node2")?;
        let slow = slow?;
        assert!(slow > quick + Duration::from_secs(1), "quick {quick:?}, slow {slow:?}");
        let again = fetch().await?;
        assert!(again < slow, "slow {slow:?}, after {again:?}");
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn containers_are_paused_resumed_killed_and_their_data_wiped_and_corrupted() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let test = TestNamespace::new(lab, "hands").await.unwrap();
    test.run(async |test| {
        let two = server(test, "two", "node2").await?;
        server(test, "one", "node1").await?;
        lab.signal_container(&two, "c", Signal::SIGSTOP)?;
        assert!(!reaches(test, "one", &two).await);
        lab.signal_container(&two, "c", Signal::SIGCONT)?;
        assert!(reaches(test, "one", &two).await);

        let file = lab.corrupt(&two, "d", ".")?;
        assert_ne!(std::fs::read_to_string(&file).unwrap_or_default().trim(), "served-by-two");
        lab.wipe(&two, "d")?;
        assert!(!file.exists());

        lab.signal_container(&two, "c", Signal::SIGKILL)?;
        wait_for(&test.api::<Pod>(), "two", LIMIT, "to be restarted", |p| restarts(p) == 1 && ready(p))
            .await?;
        assert!(file.exists(), "the container wrote it anew");
        Ok::<_, lab::Error>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_api_server_and_a_kubelet_come_back_after_a_restart_and_a_pause() {
    let (lab, _turn) = lab_alone().await.unwrap();
    let answers = async |lab: &Lab| {
        let client = lab.client().await?;
        let asked = tokio::time::timeout(Duration::from_secs(2), client.apiserver_version()).await;
        Ok::<_, lab::Error>(matches!(asked, Ok(Ok(_))))
    };
    lab.pause_api_server().unwrap();
    let paused = answers(lab).await;
    let rows = lab::status::status(&lab.layout).await;
    lab.resume_api_server().unwrap();
    assert!(!paused.unwrap());
    let rows = rows.unwrap();
    let of = |component: &str| rows.iter().find(|row| row.component == component).map(|row| row.health);
    assert_eq!(of("apiserver"), Some(Health::Unhealthy), "it takes connections, and says nothing");
    assert_eq!(of("etcd"), Some(Health::Healthy));
    lab.restart_api_server().unwrap();
    until("the API server", LIMIT, async || Ok(answers(lab).await?.then_some(()).ok_or("silent")))
        .await
        .unwrap();
    lab.restart_kubelet("node1").unwrap();
    lab.node_ready("node1", LIMIT).await.unwrap();
}
