//! Every kind of damage, each with its own message.

use super::etcds::Etcd;
use super::{folder, saved};
use lab::programs::EtcdVersion::V3_5_16;
use snapshot::{Expect, FetchError, InspectError, Kind, Naming, Place, fetch, inspect};
use tokio::sync::OnceCell;

/// One snapshot for all of these tests, with a few hundred pages.
pub async fn good() -> Vec<u8> {
    static GOOD: OnceCell<Vec<u8>> = OnceCell::const_new();
    GOOD.get_or_init(async || {
        let etcd = Etcd::start(V3_5_16, 1).await;
        etcd.history(300).await;
        let root = tempfile::tempdir().unwrap();
        saved(&etcd.endpoints(), &folder(root.path(), "good"), Naming::AsGiven).await.unwrap();
        std::fs::read(root.path().join("good")).unwrap()
    })
    .await
    .clone()
}

/// In whose words a damaged copy is refused; and nothing is left of it where it was fetched to.
async fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = good().await;
    change(&mut bytes);
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("bad"), &bytes).unwrap();
    let (place, to) = (folder(root.path(), "bad"), root.path().join("fetched"));
    let fetched = fetch(&place, &to, &Expect::default(), |_| {}).await;
    assert!(!to.exists());
    let Err(FetchError::Damage { damage, .. }) = fetched else { panic!("{fetched:?}") };
    match inspect(&Place::memory(bytes).await.unwrap(), Kind::Snapshot).await {
        Err(InspectError::Damage(same)) => assert_eq!(same, damage),
        other => panic!("{other:?}"),
    }
    damage.to_string()
}

#[track_caller]
fn says(message: &str, words: &str) {
    assert!(message.contains(words), "{message}");
}

#[tokio::test]
async fn nothing_is_wrong_with_the_good_one() {
    let place = Place::memory(good().await).await.unwrap();
    let contents = inspect(&place, Kind::Snapshot).await.unwrap();
    assert!(contents.keys > 100 && contents.compacted > 0, "{contents:?}");
    assert_eq!(contents.prefixes.len(), 3);
}

#[tokio::test]
async fn an_empty_file() {
    says(&refusal(Vec::clear).await, "it is empty");
}

#[tokio::test]
async fn what_is_no_snapshot() {
    says(&refusal(|bytes| *bytes = b"hello".to_vec()).await, "not a snapshot of etcd");
    says(&refusal(|bytes| bytes.fill(7)).await, "not a snapshot of etcd");
}

#[tokio::test]
async fn a_truncated_file() {
    for keep in [100, 4200, 40_000, 123_456] {
        let message = refusal(|bytes| bytes.truncate(keep)).await;
        says(&message, &format!("it is truncated: {keep} bytes are there"));
    }
    says(&refusal(|bytes| bytes.truncate(bytes.len() - 4096)).await, "it is truncated");
    says(&refusal(|bytes| bytes.truncate(bytes.len() - 1)).await, "it is truncated");
    says(&refusal(|bytes| bytes.truncate(bytes.len() - 32)).await, "trailer is missing");
}

#[tokio::test]
async fn more_than_etcd_wrote() {
    says(&refusal(|bytes| bytes.extend([0; 512])).await, "512 bytes follow its end");
}

#[tokio::test]
async fn a_flipped_bit_in_the_trailer() {
    says(&refusal(|bytes| *bytes.last_mut().unwrap() ^= 4).await, "SHA-256 trailer is damaged");
}

#[tokio::test]
async fn a_flipped_bit_in_a_value() {
    // The text of a value: nothing but the sum of the whole can tell.
    let flip = |bytes: &mut Vec<u8>| {
        let at = bytes.windows(8).rposition(|window| window == b"value 29").unwrap();
        bytes[at + 1] ^= 1;
    };
    says(&refusal(flip).await, "its contents are damaged");
}

#[tokio::test]
async fn a_flipped_bit_in_a_page() {
    // Of all pages of a kind, since some are not in use: number, kind, count, and the first element.
    for (kind, byte) in [(1, 3), (1, 8), (1, 11), (1, 19), (1, 27), (2, 3), (2, 8), (2, 11), (2, 23)] {
        let message = refusal(|bytes| {
            let pages =
                bytes.chunks_exact_mut(4096).filter(|page| u16::from_le_bytes([page[8], page[9]]) == kind);
            pages.for_each(|page| page[byte] ^= 0x40);
        });
        says(&message.await, "page ");
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_meta_page() {
    says(&refusal(|bytes| bytes[16 + 20] ^= 1).await, "meta page 0 is damaged: its checksum is wrong");
    says(&refusal(|bytes| bytes[4096 + 16 + 40] ^= 1).await, "meta page 1 is damaged: its checksum is wrong");
}

#[tokio::test]
async fn another_backup_than_the_one_that_was_meant() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("good"), good().await).unwrap();
    let to = root.path().join("fetched");
    let fetched = async |expect: Expect| {
        let error = fetch(&folder(root.path(), "good"), &to, &expect, |_| {}).await.unwrap_err();
        assert!(!to.exists());
        error.to_string()
    };
    let other = Some("0".repeat(64));
    says(&fetched(Expect { sha256: other.clone(), digest: None }).await, "this is another backup");
    says(&fetched(Expect { sha256: None, digest: other }).await, "the data is not the backup's");
}

/// A file system of one megabyte; only root can make one.
#[tokio::test]
async fn a_disk_that_is_full_during_fetch() {
    use nix::mount::{MsFlags, mount, umount};
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("good"), good().await).unwrap();
    let small = root.path().join("small");
    std::fs::create_dir(&small).unwrap();
    mount(Some("none"), &small, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
    let to = small.join("fetched");
    let fetched = fetch(&folder(root.path(), "good"), &to, &Expect::default(), |_| {}).await;
    let left = to.exists();
    let saved = folder(&small, "copy").put(good().await).await;
    umount(&small).unwrap();
    says(&fetched.unwrap_err().to_string(), "the disk is full");
    says(&saved.unwrap_err().to_string(), "no space left");
    assert!(!left);
}
