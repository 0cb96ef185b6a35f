//! Folders and S3: series, retention, uploads that are cut short, and stores that refuse.

use super::etcds::{Etcd, digest};
use super::s3::{S3, source};
use super::{folder, meta, saved};
use lab::programs::EtcdVersion::V3_5_16;
use rstest::rstest;
use snapshot::store::Secret;
use snapshot::{
    Damage, From, InspectError, Kind, Naming, Place, Progress, SaveError, StoreError, StoreSource, inspect,
    manifest, save, store, sweep,
};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// Thirty megabytes: several parts of an upload.
async fn large() -> Etcd {
    let etcd = Etcd::start(V3_5_16, 1).await;
    let member = etcd.member();
    for number in 0..30 {
        member.put(format!("/large/{number}"), vec![b'v'; 1 << 20]).await.unwrap();
    }
    etcd
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_goes_to_s3_and_counts() {
    let (etcd, s3) = (large().await, S3::start());
    let place = s3.place("mybucket/etcd.backup");
    let (place, manifest) = saved(&etcd.endpoints(), &place, Naming::AsGiven).await.unwrap();
    assert_eq!(place.path(), "etcd.backup");
    assert_eq!((manifest.keys, manifest.digest.as_str()), (30, digest(&etcd.keys().await).as_str()));
    assert_eq!(manifest::read(&place).await.unwrap(), Some(manifest));
    assert_eq!(s3.files(), ["etcd.backup", "etcd.backup.manifest.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_is_listed_and_pruned_by_its_manifests() {
    let (etcd, s3) = (Etcd::start(V3_5_16, 1).await, S3::start());
    let root = tempfile::tempdir().unwrap();
    for prefix in [s3.place("mybucket/a/etcd.backup"), folder(root.path(), "a/etcd.backup")] {
        let mut made = Vec::new();
        for number in 0..3 {
            etcd.member().put("k", format!("{number}")).await.unwrap();
            made.push(saved(&etcd.endpoints(), &prefix, Naming::Series).await.unwrap());
        }
        // Somebody else's: a sibling, an object without manifest, a file that is no manifest.
        saved(&etcd.endpoints(), &prefix.at("a/other").unwrap(), Naming::Series).await.unwrap();
        prefix.followed_by("_by_hand").unwrap().put("x").await.unwrap();
        prefix.followed_by("_x.manifest.json").unwrap().put("{}").await.unwrap();
        let listed = manifest::list(&prefix).await.unwrap();
        let paths = |list: &[(Place, snapshot::Manifest)]| {
            list.iter().map(|(place, _)| place.path().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&listed), paths(&made));
        assert!(paths(&made)[0].starts_with(&format!("a/etcd.backup_v{}_2", made[0].1.revision)));
        manifest::delete(&listed[0].0).await.unwrap();
        manifest::delete(&listed[0].0).await.unwrap();
        assert_eq!(paths(&manifest::list(&prefix).await.unwrap()), paths(&made[1..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_an_earlier_object_does_not_count() {
    let etcd = Etcd::start(V3_5_16, 1).await;
    let root = tempfile::tempdir().unwrap();
    let (place, _) = saved(&etcd.endpoints(), &folder(root.path(), "b"), Naming::AsGiven).await.unwrap();
    let old = manifest::beside(&place).unwrap().get().await.unwrap().unwrap();
    etcd.member().put("k", "v").await.unwrap();
    let (place, new) = saved(&etcd.endpoints(), &place, Naming::AsGiven).await.unwrap();
    assert_eq!(manifest::read(&place).await.unwrap(), Some(new));
    manifest::beside(&place).unwrap().put(old).await.unwrap();
    assert_eq!(manifest::read(&place).await.unwrap(), None);
}

/// Stops a backup when this much of it is on its way.
async fn stopped(etcd: &Etcd, place: &Place) -> Result<(Place, snapshot::Manifest), SaveError> {
    let stop = CancellationToken::new();
    let from = From::Cluster(etcd.endpoints());
    let moved = |progress| {
        if let Progress::Moved { .. } = progress {
            stop.cancel();
        }
    };
    save(from, place, Naming::AsGiven, &meta("uid"), &stop, moved).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_backup_leaves_nothing() {
    let (etcd, s3) = (large().await, S3::start());
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(stopped(&etcd, &s3.place("mybucket/b")).await, Err(SaveError::Stopped)));
    assert_eq!(s3.files(), [""; 0]);
    assert!(matches!(stopped(&etcd, &folder(root.path(), "b")).await, Err(SaveError::Stopped)));
    assert_eq!(root.path().read_dir().unwrap().count(), 0);
}

/// As when the process is killed: nobody ends the upload, until the next backup of the same owner comes.
#[rstest]
#[case::a_member_is_chosen(|progress: &Progress| matches!(progress, Progress::Chosen { .. }))]
#[case::bytes_move(|progress: &Progress| matches!(progress, Progress::Moved { .. }))]
#[case::it_is_read_back(|progress: &Progress| matches!(progress, Progress::Verifying { .. }))]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_leaves_is_swept(#[case] step: fn(&Progress) -> bool) {
    let (etcd, s3) = (large().await, S3::start());
    let place = s3.place("mybucket/b");
    let reached = tokio::sync::Notify::new();
    let (token, meta) = (CancellationToken::new(), meta("uid"));
    let saving = save(From::Cluster(etcd.endpoints()), &place, Naming::AsGiven, &meta, &token, |progress| {
        if step(&progress) {
            reached.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = reached.notified() => {}
        _ = saving => panic!("it was done before it was killed"),
    }
    // A part that arrives after its upload was ended stays on this server.
    s3.comes_to_rest().await;
    assert!(manifest::list(&place).await.unwrap().is_empty(), "it does not count");
    let begun = usize::from(s3.files().iter().any(|file| file.contains("b.uploading.json")));
    assert!(begun == 1 || s3.files().is_empty(), "nothing lies about that nobody knows of: {:?}", s3.files());
    assert_eq!(sweep(&place, "another").await.unwrap(), 0);
    assert_eq!(sweep(&place, "uid").await.unwrap(), begun);
    assert_eq!(s3.files(), [""; 0]);
    saved(&etcd.endpoints(), &place, Naming::AsGiven).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_process_leaves_in_a_folder_is_swept() {
    let root = tempfile::tempdir().unwrap();
    let place = folder(root.path(), "b");
    let note = r#"{"upload":null,"ownerUid":"uid","started":"2026-11-15T00:00:00Z","replaces":false}"#;
    place.followed_by(".uploading.json").unwrap().put(note).await.unwrap();
    for name in ["b#1", "b", "b#x", "bc#1"] {
        std::fs::write(root.path().join(name), "half").unwrap();
    }
    assert_eq!(sweep(&place, "uid").await.unwrap(), 1);
    let mut left: Vec<_> = root.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["b#x", "bc#1"]);
}

/// Its process died after it counted, and before it had tidied up: the note goes, the backup stays.
#[tokio::test]
async fn of_a_backup_that_counts_only_the_note_is_swept() {
    let root = tempfile::tempdir().unwrap();
    let place = folder(root.path(), "b");
    let note = r#"{"upload":null,"ownerUid":"uid","started":"2026-11-15T00:00:00Z","replaces":false}"#;
    for (suffix, text) in [("", "whole"), (".manifest.json", "{}"), (".uploading.json", note)] {
        std::fs::write(root.path().join(format!("b{suffix}")), text).unwrap();
    }
    assert_eq!(sweep(&place, "uid").await.unwrap(), 1);
    let mut left: Vec<_> = root.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["b", "b.manifest.json"]);
}

/// The server dies in the middle and comes back: the backup fails or succeeds, and nothing is left that is neither.
#[rstest]
#[case::a_member_is_chosen(|progress: &Progress| matches!(progress, Progress::Chosen { .. }))]
#[case::bytes_move(|progress: &Progress| matches!(progress, Progress::Moved { .. }))]
#[case::it_is_read_back(|progress: &Progress| matches!(progress, Progress::Verifying { .. }))]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle(#[case] step: fn(&Progress) -> bool) {
    let etcd = large().await;
    let s3 = std::sync::Mutex::new(S3::start());
    let place = s3.lock().unwrap().place("mybucket/b");
    let (token, meta) = (CancellationToken::new(), meta("uid"));
    let killed = AtomicBool::new(false);
    let moved = |progress| {
        if step(&progress) && !killed.swap(true, Ordering::Relaxed) {
            let mut s3 = s3.lock().unwrap();
            s3.kill();
            s3.resume();
        }
    };
    let done = save(From::Cluster(etcd.endpoints()), &place, Naming::AsGiven, &meta, &token, moved).await;
    assert!(killed.load(Ordering::Relaxed));
    if done.is_err() {
        sweep(&place, "uid").await.unwrap();
        assert_eq!(s3.lock().unwrap().files(), [""; 0]);
        saved(&etcd.endpoints(), &place, Naming::AsGiven).await.unwrap();
    }
    assert_eq!(s3.lock().unwrap().files(), ["b", "b.manifest.json"]);
    assert!(manifest::read(&place).await.unwrap().is_some());
}

/// What the store gives back is not what it was given: it does not count, and does not stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_alters_what_it_is_given() {
    let etcd = large().await;
    let root = tempfile::tempdir().unwrap();
    let (place, file) = (folder(root.path(), "b"), root.path().join("b"));
    let (token, meta) = (CancellationToken::new(), meta("uid"));
    let alter = |progress| {
        if matches!(progress, Progress::Verifying { .. }) {
            let mut bytes = std::fs::read(&file).unwrap();
            // The last byte before the trailer: of a page that is free, or of a value.
            let last = bytes.len() - 33;
            bytes[last] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
    };
    let done = save(From::Cluster(etcd.endpoints()), &place, Naming::AsGiven, &meta, &token, alter).await;
    assert!(matches!(done, Err(SaveError::ReadBack(Damage::Altered))), "{done:?}");
    assert_eq!(root.path().read_dir().unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_refuse_say_why() {
    let etcd = Etcd::start(V3_5_16, 1).await;
    let s3 = S3::start();
    let read = async |place: &Place| match inspect(place, Kind::Snapshot).await {
        Err(InspectError::Store(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let says = |message: String, words: &str| assert!(message.contains(words), "{message}");
    says(read(&s3.place("mybucket/wrong")).await, "/mybucket/wrong");
    assert!(matches!(s3.place("mybucket/wrong").size().await, Err(StoreError::NoObject { .. })));
    let wrong_bucket = s3.place("wrong/key");
    says(read(&wrong_bucket).await, "there is no bucket for");
    let error = saved(&etcd.endpoints(), &wrong_bucket, Naming::AsGiven).await.unwrap_err();
    says(error.to_string(), "there is no bucket for");

    let mut secret = s3.secret();
    secret.insert(
        "credentials".into(),
        b"[default]\naws_access_key_id = ID\naws_secret_access_key = NO\n".into(),
    );
    let denied = store::open(&source("mybucket/key"), &secret).unwrap();
    says(read(&denied).await, "check the secret");
    secret.remove("credentials");
    let error = store::open(&source("mybucket/key"), &secret).unwrap_err();
    says(error.to_string(), "no key \"credentials\"");
    let error = store::open(&source("mybucket"), &s3.secret()).unwrap_err();
    says(error.to_string(), "write bucket/key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_is_named_goes_before_the_default() {
    let s3 = S3::start();
    let mut secret = s3.secret();
    let keys =
        |name: &str, key: &str| format!("[{name}]\naws_access_key_id = ID\naws_secret_access_key = {key}\n");
    secret.insert("credentials".into(), (keys("default", "NO") + &keys("backups", "KEY")).into_bytes());
    let config = format!("[profile backups]\nregion = us-east-1\nendpoint_url = {}\n", s3.endpoint());
    secret.insert("config".into(), config.into_bytes());
    let named = StoreSource::S3 {
        path: "mybucket/k".into(),
        endpoint: None,
        force_path_style: false,
        profile: Some("backups".into()),
        region: None,
    };
    store::open(&named, &secret).unwrap().put("x").await.unwrap();
    assert_eq!(s3.files(), ["k"]);
}

const STORE: &str = "TEST_STORE";

/// It runs itself once more, with an environment of its own.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_the_environment_says_who_asks() {
    let Ok(endpoint) = std::env::var(STORE) else {
        let s3 = S3::start();
        let again = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stores::without_a_secret_the_environment_says_who_asks"])
            .envs([(STORE, s3.endpoint().as_str()), ("AWS_REGION", "us-east-1")])
            .envs([("AWS_ACCESS_KEY_ID", "ID"), ("AWS_SECRET_ACCESS_KEY", "KEY")])
            .status();
        assert!(again.unwrap().success());
        assert_eq!(s3.files(), ["k"]);
        return;
    };
    let there = StoreSource::S3 {
        path: "mybucket/k".into(),
        endpoint: Some(endpoint),
        force_path_style: false,
        profile: None,
        region: None,
    };
    store::open(&there, &Secret::new()).unwrap().put("x").await.unwrap();
}

/// Takes as long as requests are repeated: half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached() {
    let mut s3 = S3::start();
    s3.kill();
    let place = s3.place("mybucket/key");
    match place.size().await {
        Err(error @ StoreError::Unreachable { .. }) => {
            assert!(error.to_string().contains("refused"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
