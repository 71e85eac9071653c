//! What verifica@ offers, kept true: asked of this host again on SIGHUP and whenever a sandbox refuses that was there
//! before, and its card certified again when the answer has changed.

use super::serve::install_own_cards;
use crate::observe::jobs::Jobs;
use crate::server::Doors;

/// Runs the self-test, and lets the house offer what it says. Answers whether something changed. A card that another
/// program keeps is its business.
pub async fn offer_again(doors: &Doors, jobs: &Jobs, own_card: bool) -> Result<bool, String> {
    let policy = jobs.policy().clone();
    let offered = tokio::task::spawn_blocking(move || Jobs::offered_here(&policy)).await;
    let offered = offered.map_err(|fault| format!("the self-test failed: {fault}"))?;
    let missing = offered.unenforced.clone();
    if !doors.house().settings.arbiter || !doors.offer(offered) {
        return Ok(false);
    }
    if own_card {
        install_own_cards(doors).await.map_err(|refusal| refusal.reason)?;
    }
    match missing {
        Some(missing) => tracing::error!(event = "sandbox_lost", missing, "exit_0 tests are no longer offered"),
        None => tracing::info!(event = "sandbox_found", "exit_0 tests are offered"),
    }
    Ok(true)
}
