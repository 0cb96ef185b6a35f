//! One at a time for each place: two that save under one name would take each other's backup for their own.

use crate::Place;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;

static TURNS: LazyLock<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// Waits until nobody else of this process saves there; it is the caller's turn until the guard is dropped.
pub(crate) async fn turn(place: &Place) -> OwnedMutexGuard<()> {
    let turn = {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(place.to_string()).or_default().clone()
    };
    turn.lock_owned().await
}
