//! Signals, and what the service manager is told: SIGTERM and SIGINT end the house in order, a second one at once; SIGHUP
//! reads the certificate again, and asks this host again what it can run. The caller learns how it ended.

use super::{Drained, Running};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a house ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    InOrder(Drained),
    /// A second signal came during the drain.
    AtOnce,
    /// The disk failed, and nothing more could be acknowledged: the service manager should start the house again.
    StoreFailed(String),
}

/// Runs until a signal or the disk ends the house.
pub async fn until_ended(running: Running) -> std::io::Result<Ended> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tell(&[sd_notify::NotifyState::Ready]);
    loop {
        tokio::select! {
            _ = either(&mut terminate, &mut interrupt) => break,
            _ = hangup.recv() => reload(&running).await,
            reason = running.poisoned() => {
                tracing::error!(event = "store_failed", reason = %reason);
                tell(&[sd_notify::NotifyState::Stopping]);
                running.shutdown().await;
                return Ok(Ended::StoreFailed(reason));
            }
        }
    }
    tell(&[sd_notify::NotifyState::Stopping]);
    tokio::select! {
        drained = running.shutdown() => Ok(Ended::InOrder(drained)),
        _ = either(&mut terminate, &mut interrupt) => {
            tracing::warn!(event = "stopped_at_once");
            Ok(Ended::AtOnce)
        }
    }
}

async fn reload(running: &Running) {
    if let Err(reason) = running.reload_tls() {
        tracing::error!(event = "tls_not_reloaded", reason = %reason);
    }
    if let Err(reason) = running.offer_again().await {
        tracing::error!(event = "offer_not_renewed", reason = %reason);
    }
}

async fn either(one: &mut Signal, other: &mut Signal) -> Option<()> {
    tokio::select! {
        got = one.recv() => got,
        got = other.recv() => got,
    }
}

/// Without a service manager there is nobody to tell.
fn tell(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(event = "notify_failed", error = %error);
    }
}
